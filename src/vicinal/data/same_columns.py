"""Which columns of two tables hold the same, though their names differ, or though one table has several for one."""

import itertools
import re
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import linear_sum_assignment

from vicinal.core.identity import spelled, without_accents
from vicinal.data.cell_reading import read_column
from vicinal.data.form import TableForm
from vicinal.data.spelling import GAPS

Floats = np.ndarray[Any, np.dtype[np.float64]]

_ROWS = 20_000
"""Rows of a table that are looked at, at most."""

_SHARED = 10
"""Distinct words that two columns have in common, at least; of fewer their names have to tell."""

_LETTERS = 4
"""Letters of a name that is part of another one's: mail and email, phone and telephone."""

_SAME, _PART, _OTHER = 0.3, 0.25, -0.1
"""What names add to the words in common where they mean the same, where one is part of the other, and else, where both
are known words."""

_LEAST, _GAIN = 0.2, 0.1
"""Words in common, and what names add, from which on two columns are the same; and what a further column has to add."""

_LIKELY, _MOST = 6, 3
"""Columns with most words in common with one, of which some may be that one together, and how many at most."""

_LONG, _SHAPE = 6, 0.5
"""Digits of a number from which on it is a key, and what equal numbers of digits count beside equal keys."""

_CODE = re.compile(r"(?=.*[0-9])(?=.*[a-z])[0-9a-z]+([-/][0-9a-z]+)*")
"""Letters and digits, with or without marks between them: a number of a part."""

_POINT = re.compile(r"\s*\(?\s*([+-]?\d{1,3}\.\d+)(?:\s*[,;]\s*|\s+)([+-]?\d{1,3}\.\d+)\s*\)?\s*")
_POINTS, _TRIED = 0.9, 100
"""Share of the cells of a column that are two numbers, from which on it is two columns; and cells that tell."""

_ALIKE = 0.85
"""Least similarity of the distributions of numbers, 1 less the statistic of Kolmogorov and Smirnov, of one measure."""

_APART = 0.7
"""Difference of the shares of cells with letters from which on two columns are not the same."""

_MEANINGS = [
    frozenset(line.split())
    for line in """
    name names fullname nom nome nombre naam nazwa bezeichnung denominazione denominacion nombrecompleto nomecompleto
    number no nr num numero nummer id code
    date datum fecha data type typ tipo
    first firstname fname forename given givenname vorname rufname prenom nombre nombres nome voornaam imie
    last lastname lname surname family familyname nachname familienname nom apellido apellidos cognome sobrenome
    company companyname firm firma unternehmen business organization organisation entreprise societe empresa azienda
    customer kunde client cliente klant
    supplier vendor lieferant fournisseur proveedor fornitore
    birth born birthdate birthday dob geburtsdatum geburtstag geboren naissance nacimiento nascita nascimento
    year yr jahr annee ano anno jaar rok released erscheinungsjahr
    phone telephone tel telefon telefonnummer telefono telefone mobile mobil handy cell movil cellulare rufnummer
    email mail courriel correo
    street strasse str rue calle via rua straat ulica address addr adresse anschrift direccion indirizzo endereco adres
    housenumber houseno hausnummer hausnr huisnummer numero number no nr
    zip zipcode plz postleitzahl postcode postal postalcode codepostal cp codigopostal cap cep
    city town location ort stadt wohnort ville commune municipality ciudad localidad poblacion municipio citta comune
    latitude lat breite breitengrad latitud latitudine
    longitude lon lng long laenge laengengrad longitud longitudine
    state province bundesland region provincia estado regione county kanton
    country countrycode land pays pais paese kraj
    gender sex geschlecht sexe sexo sesso
    title titel titre titulo titolo tytul
    product productname item artikel produkt produit producto articulo prodotto articolo produto title
    author authors autor autoren verfasser auteur auteurs autores autore autori
    director regisseur regie regia regista realisateur
    publisher verlag editeur editorial editore editora
    brand manufacturer maker hersteller marke marque fabricant marca fabricante produttore
    price preis prix precio prezzo preco prijs cena cost
    ean gtin upc barcode
    isbn
    vat tax ust ustid tva nif cif piva btw nip steuernummer
    website web url homepage site webseite sito
    genre genero genere category kategorie categorie categoria
    pages seiten seitenzahl paginas pagine
    runtime duration dauer laufzeit duree duracion durata
    venue journal conference booktitle zeitschrift revue revista rivista
    description beschreibung descripcion descrizione
    quantity qty menge anzahl quantite cantidad quantita
    color colour farbe couleur colore
    department dept abteilung departement departamento dipartimento reparto
    """.strip().splitlines()
]
"""Words of one meaning as columns are called; those of the first three say less than others beside them."""

_GENERAL = 3


@dataclass(frozen=True)
class _Column:
    """What a column is compared by.

    Attributes:
        words: how often each stands in its cells; of dates their years.
        shape: how many of its cells have each number of digits, where they are keys of digits.
        lettered: share of its cells that have letters.
        is_date: whether it holds dates.
        numbers: its numbers, in order; of keys and other columns none.
        plain: its name without marks.
        meanings: of its name, places among the words of one meaning.
    """

    words: Counter[str]
    shape: Counter[int]
    lettered: float
    is_date: bool
    numbers: Floats
    plain: str
    meanings: frozenset[int]


def same_columns(left: pd.DataFrame, right: pd.DataFrame) -> dict[tuple[str, ...], tuple[str, ...]]:
    """The columns of the left table that those of the right one are, which have another name; one may be up to three.

    Columns of one name are left as they are. Of the others those are paired first whose names differ in case and marks
    alone, and then those that together have most words in common, and names of one meaning in several languages.
    Numbers are also paired by their distribution, where it is like that of one column alone.
    Last, a column is paired with two or three of the other table, if each of these adds words that both have in common.

    >>> left = pd.DataFrame({"First Name": ["Ann", "Bo"], "E-Mail": ["a@b.de", "c@d.de"]})
    >>> same_columns(left, pd.DataFrame({"correo": ["a@b.de", "x@y.de"], "first_name": ["Bo", "Ann"]}))
    {('First Name',): ('first_name',), ('E-Mail',): ('correo',)}
    """
    here = _columns(left.drop(columns=[name for name in left.columns if name in right.columns]))
    there = _columns(right.drop(columns=[name for name in right.columns if name in left.columns]))
    same: dict[str, str] = {}
    for one, other in itertools.product(here, there):
        if here[one].plain == there[other].plain and one not in same and other not in same.values():
            same[one] = other
    rows = [name for name in here if name not in same]
    columns = [name for name in there if name not in same.values()]
    if rows and columns:
        likeness = np.array([[_likeness(here[one], there[other]) for other in columns] for one in rows])
        measures = np.array([[_one_measure(here[one], there[other]) for other in columns] for one in rows])
        only = (measures.sum(axis=0) == 1) & (measures.sum(axis=1, keepdims=True) == 1)
        likeness = np.maximum(likeness, _SHAPE * (measures & only))
        for row, column in zip(*linear_sum_assignment(-likeness), strict=True):
            if likeness[row, column] >= _LEAST:
                same[rows[row]] = columns[column]
    order = [name for name in here if name in same]
    return _with_several({(one,): (same[one],) for one in order}, here, there)


def _with_several(
    same: dict[tuple[str, ...], tuple[str, ...]], here: dict[str, _Column], there: dict[str, _Column]
) -> dict[tuple[str, ...], tuple[str, ...]]:
    """The same columns, where one is several of the other table if each of these adds words that it has."""
    pairs = list(same.items())
    for whole, parts, side in ((here, there, 0), (there, here, 1)):
        for one, column in whole.items():
            partner = next((pair[1 - side] for pair in pairs if pair[side] == (one,)), ())
            if len(partner) > 1 or (column.is_date or column.shape):
                continue
            taken = {name for pair in pairs for name in pair[1 - side]} - {*partner}
            several = _together(column, {name: part for name, part in parts.items() if name not in taken}, partner)
            if len(several) > 1:
                pairs = [pair for pair in pairs if pair[side] != (one,)]
                pairs.append(((one,), several) if side == 0 else (several, (one,)))
    return dict(pairs)


def _together(whole: _Column, parts: dict[str, _Column], partner: tuple[str, ...]) -> tuple[str, ...]:
    """The columns, ``partner`` among them, that have most words in common with one, in the order of their table."""
    single = {name: _common(whole.words, part.words) for name, part in parts.items()}
    likely = sorted((name for name in single if single[name]), key=lambda name: -single[name])[:_LIKELY]
    likely, chosen, reached = [name for name in parts if name in (*likely, *partner)], partner, _LEAST - _GAIN
    for count in range(2, _MOST + 1):
        joint = {
            names: common
            for names in itertools.combinations(likely, count)
            if {*chosen} <= {*names}
            and (common := _common(whole.words, sum((parts[name].words for name in names), Counter[str]())))
            > max(reached, *(single[name] for name in names)) + _GAIN
        }
        if not joint:
            break
        chosen = max(joint, key=lambda names: joint[names])
        reached = joint[chosen]
    return chosen


def with_points_apart(table: pd.DataFrame, whole: Collection[str]) -> pd.DataFrame:
    """A table in which columns of points, two numbers in a cell, are two columns each, but for ``whole`` ones.

    >>> with_points_apart(pd.DataFrame({"place": ["48.85, 2.35", None]}), []).to_dict("list")
    {'place 1': [48.85, nan], 'place 2': [2.35, nan]}
    """
    for name in [name for name in table.columns if name not in whole]:
        cells = table[name].dropna()
        points = [isinstance(cell, str) and _POINT.fullmatch(cell) for cell in cells.iloc[:_TRIED]]
        taken = {f"{name} 1", f"{name} 2"} & set(map(str, table.columns))
        if taken or sum(map(bool, points)) < max(1.0, _POINTS * len(points)):
            continue
        parts = table[name].astype(object).map(lambda cell: _POINT.fullmatch(str(cell)))
        place, table = list(table.columns).index(name), table.drop(columns=name)
        for part in (2, 1):
            numbers = [float(point[part]) if point else np.nan for point in parts]
            table.insert(place, f"{name} {part}", numbers)
    return table


def sources_of(same: dict[tuple[str, ...], tuple[str, ...]]) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """The columns of the left table, and of the right one, that each is made from, by the name where it is one."""
    names = [one[0] if len(one) == 1 else other[0] for one, other in same.items()]
    left, right = (dict(zip(names, map(list, each), strict=True)) for each in (same.keys(), same.values()))
    return left, right


def with_sources(table: pd.DataFrame, sources: dict[str, list[str]]) -> pd.DataFrame:
    """A table with the columns that are made from some of its own, where it has them."""
    for name, names in sources.items():
        if name not in table.columns and set(names) <= set(table.columns):
            table = _named(table, names, name)
    return table


def _named(table: pd.DataFrame, names: list[str], name: str) -> pd.DataFrame:
    if len(names) == 1:
        return table.rename(columns={names[0]: name})
    texts = [table[each].map(_shown, na_action="ignore").fillna("") for each in names]
    joined = texts[0].str.cat(pd.concat(texts[1:], axis=1), sep=" ").str.split().str.join(" ")
    place = list(table.columns).index(names[0])
    table = table.drop(columns=names)
    table.insert(place, name, joined.mask(joined == ""))
    return table


def _shown(cell: Any) -> str:
    return str(int(cell)) if isinstance(cell, float) and cell.is_integer() else str(cell)


def _folded(text: str) -> str:
    return without_accents(spelled(text, loose=True))


def _columns(table: pd.DataFrame) -> dict[str, _Column]:
    some = table.sample(_ROWS, random_state=0) if len(table) > _ROWS else table
    forms = TableForm.of(some).columns
    columns = {}
    for name in some.columns:
        cells = read_column(forms[name], some[name]) if name in forms and forms[name].kind != "list" else some[name]
        columns[name] = _column(str(name), cells.dropna())
    return columns


def _column(name: str, cells: "pd.Series[Any]") -> _Column:
    is_date = pd.api.types.is_datetime64_any_dtype(cells)
    is_number = pd.api.types.is_numeric_dtype(cells)
    shown = [_shown(cell) for cell in (cells.dt.year if is_date else cells) if not isinstance(cell, list | np.ndarray)]
    texts = [_folded(cell) for cell in shown]
    texts = [text for text in texts if text not in GAPS]
    lettered = float(np.mean([any(map(str.isalpha, text)) for text in texts])) if texts else 0.0
    digits = [re.sub(r"\D", "", text) for text in texts]
    is_key = (
        not is_date and lettered < 1 - _APART and np.mean([len(each) >= _LONG for each in digits] or [False]) > _APART
    )
    words = digits if is_key else [word for text in texts for word in re.findall(r"\w+", text)]
    codes = [re.sub(r"[-/]", "", text) for text in texts if _CODE.fullmatch(text)]
    if not is_date and sum(len(code) >= _LONG for code in codes) > _APART * len(texts):
        words = codes
    if is_number and not is_key:
        words = texts
    parts = [_folded(part) for part in re.findall(r"[^\W\d_]+", re.sub(r"([a-z])([A-Z])", r"\1 \2", name))]
    whole, every = "".join(parts), [*parts, "".join(parts)]
    known = {place for place, meant in enumerate(_MEANINGS) if whole in meant}
    known = known or {place for place, meant in enumerate(_MEANINGS) if not meant.isdisjoint(every)}
    known = {place for place in known if place >= _GENERAL} or known
    shape = Counter(map(len, digits)) if is_key else Counter[int]()
    plain = re.sub(r"[\W_]+", "", spelled(name, loose=True))
    numbers = np.sort(cells.to_numpy(np.float64)) if is_number and not is_key else np.zeros(0)
    return _Column(Counter(words), shape, lettered, is_date, numbers, plain, frozenset(known))


def _common(one: Counter[str], other: Counter[str]) -> float:
    """The share of the words that both have in common; 0 of too few distinct ones."""
    return _shared(one, other) if len(one.keys() & other.keys()) >= _SHARED else 0.0


def _large(numbers: Counter[str]) -> Counter[str]:
    return Counter({each: count for each, count in numbers.items() if "." in each or len(each) >= _LETTERS})


def _shared(one: Counter[Any], other: Counter[Any]) -> float:
    totals = max(1, one.total()), max(1, other.total())
    return sum(min(one[each] / totals[0], other[each] / totals[1]) for each in one.keys() & other.keys())


def _likeness(one: _Column, other: _Column) -> float:
    if one.is_date != other.is_date or abs(one.lettered - other.lettered) > _APART:
        return 0.0
    words = one.words, other.words
    if len(one.numbers) and len(other.numbers):  # small ones are in common by chance
        words = _large(one.words), _large(other.words)
    common = max(_common(*words), _SHAPE * _shared(one.shape, other.shape))
    if one.is_date:  # few years may be all there are
        common = _shared(one.words, other.words)
    if one.meanings and other.meanings:
        return common + (_OTHER if one.meanings.isdisjoint(other.meanings) else _SAME)
    names = one.plain, other.plain
    is_part = min(map(len, names)) >= _LETTERS and (names[0] in names[1] or names[1] in names[0])
    return common + _PART * is_part


def _one_measure(one: _Column, other: _Column) -> bool:
    """Whether numbers are distributed alike, and their names may mean the same."""
    sides, values = (one.numbers, other.numbers), np.union1d(one.numbers, other.numbers)
    few = min(len(np.unique(side)) for side in sides) < _SHARED
    if few or (one.meanings and other.meanings and one.meanings.isdisjoint(other.meanings)):
        return False
    shares = [np.searchsorted(side, values, "right") / len(side) for side in sides]
    return bool(1 - np.abs(shares[0] - shares[1]).max() >= _ALIKE)
