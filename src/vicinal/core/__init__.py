"""What all other packages share: types, checks, the safe log of a mask, the registry."""

from vicinal.core.arrays import as_tensor as as_tensor
from vicinal.core.checks import CalibrationWarning as CalibrationWarning
from vicinal.core.checks import CellWarning as CellWarning
from vicinal.core.checks import ColumnError as ColumnError
from vicinal.core.checks import ColumnWarning as ColumnWarning
from vicinal.core.checks import ExtrapolationWarning as ExtrapolationWarning
from vicinal.core.checks import check_choice as check_choice
from vicinal.core.checks import counted as counted
from vicinal.core.checks import listed as listed
from vicinal.core.checks import nearest as nearest
from vicinal.core.checks import short as short
from vicinal.core.files import replaced_file as replaced_file
from vicinal.core.reduce import Reduction as Reduction
from vicinal.core.reduce import log_mask as log_mask
from vicinal.core.registry import FACTS as FACTS
from vicinal.core.registry import KINDS as KINDS
from vicinal.core.registry import entries as entries
from vicinal.core.registry import entry as entry
from vicinal.core.registry import make as make
from vicinal.core.registry import register as register
from vicinal.exports import export_imported as _export_imported

_export_imported(__name__)
