"""New classes, and labels for rows that have none: tensors in and out."""

from vicinal.clustering.ddfa import DomainClasses, ddfa, domain_class_posteriors
from vicinal.clustering.discovery import Discovery, discover_groups, within_class_whitening
from vicinal.clustering.known_classes import (
    Clusters,
    Spectrum,
    cluster_accuracy,
    hidden_class_score,
    known_class_kmeans,
    known_class_spectral,
    spectral_vectors,
)
from vicinal.clustering.partial_assignment import partial_assignment
from vicinal.clustering.transductive import Transduction, neighbor_affinity, transductive, transductive_classes

__all__ = [
    "Clusters",
    "Discovery",
    "DomainClasses",
    "Spectrum",
    "Transduction",
    "cluster_accuracy",
    "ddfa",
    "discover_groups",
    "domain_class_posteriors",
    "hidden_class_score",
    "known_class_kmeans",
    "known_class_spectral",
    "neighbor_affinity",
    "partial_assignment",
    "spectral_vectors",
    "transductive",
    "transductive_classes",
    "within_class_whitening",
]
