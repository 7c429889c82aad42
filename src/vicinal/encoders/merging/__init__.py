"""Two networks of one architecture become one: whose hidden units belong together, and what their mean is."""

from vicinal.encoders.merging.matching import activation_matching as activation_matching
from vicinal.encoders.merging.matching import sinkhorn_matching as sinkhorn_matching
from vicinal.encoders.merging.matching import unit_products as unit_products
from vicinal.encoders.merging.matching import unit_values as unit_values
from vicinal.encoders.merging.matching import weight_matching as weight_matching
from vicinal.encoders.merging.merged import merge as merge
from vicinal.encoders.merging.partial import partly_merged as partly_merged
from vicinal.encoders.merging.units import Axes as Axes
from vicinal.encoders.merging.units import Orders as Orders
from vicinal.encoders.merging.units import permuted as permuted
from vicinal.encoders.merging.units import same_input as same_input
from vicinal.encoders.merging.units import unit_axes as unit_axes
from vicinal.exports import export_imported as _export_imported

_export_imported(__name__)
