"""New classes, and labels for rows that have none: tensors in and out."""

from vicinal.clustering.ddfa import DomainClasses as DomainClasses
from vicinal.clustering.ddfa import ddfa as ddfa
from vicinal.clustering.ddfa import domain_class_posteriors as domain_class_posteriors
from vicinal.clustering.discovery import Discovery as Discovery
from vicinal.clustering.discovery import discover_groups as discover_groups
from vicinal.clustering.discovery import within_class_whitening as within_class_whitening
from vicinal.clustering.known_classes import Clusters as Clusters
from vicinal.clustering.known_classes import Spectrum as Spectrum
from vicinal.clustering.known_classes import cluster_accuracy as cluster_accuracy
from vicinal.clustering.known_classes import hidden_class_score as hidden_class_score
from vicinal.clustering.known_classes import known_class_kmeans as known_class_kmeans
from vicinal.clustering.known_classes import known_class_spectral as known_class_spectral
from vicinal.clustering.known_classes import spectral_vectors as spectral_vectors
from vicinal.clustering.partial_assignment import partial_assignment as partial_assignment
from vicinal.clustering.transductive import Transduction as Transduction
from vicinal.clustering.transductive import neighbor_affinity as neighbor_affinity
from vicinal.clustering.transductive import transductive as transductive
from vicinal.clustering.transductive import transductive_classes as transductive_classes
from vicinal.exports import export_imported as _export_imported

_export_imported(__name__)
