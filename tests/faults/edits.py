"""Seeded edits of a model folder, as somebody would make them who means harm, or a disk that fails."""

import copy
import hashlib
import json
import os
import shutil

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
from safetensors.numpy import load_file, save_file

SUMS = "SHA256SUMS"
TENSORS = ("model.safetensors", "bank.safetensors", "held/bank.safetensors")
REACHING = (
    "milvus:../else/vicinal-fault.db",
    "milvus:http://127.0.0.1:9",
    "hub:someone/model",
    "folder:/etc",
    "/etc/passwd",
    "../../else",
    "os.system",
    "cuda:7",
    "x" * 100_000,
)
NUMBERS = (-1, 0, 30_000, 10**12, 2**63, 10**400, -0.5, 1e308)


def edit(rng, folder, others):
    """Edit the folder of a model.

    Args:
        rng: of numpy.
        folder: of the model.
        others: folders of other models.

    Returns:
        what was done, and whether the result must be that of the unedited folder if there is one: a schema can tell
        the edit, or it means nothing.
    """
    kinds = (_edit_json, _edit_json, _edit_json, _edit_tensors, _edit_tensors, _edit_table, _edit_file)
    done, tellable = kinds[rng.integers(len(kinds))](rng, folder, others)
    if rng.random() < 0.9:
        seal(folder)
        return f"{done}, sealed", tellable
    return done, True


def seal(folder):
    """Make all checksums of a folder valid again."""
    for part in (folder / "held", *sorted((folder / "index").glob("*")), folder):
        if not part.is_dir() or part.is_symlink():
            continue
        _seal_header(part)
        files = sorted(path for path in part.rglob("*") if path.is_file() and path != part / SUMS)
        lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(part)}\n" for path in files]
        if (part / SUMS).is_file():
            (part / SUMS).write_text("".join(lines))


def _seal_header(part):
    bank, rows = part / "bank.json", part / "bank.safetensors"
    if not (bank.is_file() and rows.is_file()):
        return
    raw = rows.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    try:
        config = json.loads(bank.read_text())
        if "header" in config:
            config["header"] = hashlib.sha256(raw[: 8 + length]).hexdigest()
            bank.write_text(json.dumps(config))
    except (ValueError, TypeError, RecursionError):
        return  # bank.json itself was edited


# JSON.


def _edit_json(rng, folder, others):
    names = [str(path.relative_to(folder)) for path in folder.rglob("*.json")]
    weights = np.array([4.0 if name == "config.json" else 1.0 for name in sorted(names)])
    name = str(rng.choice(sorted(names), p=weights / weights.sum()))
    path = folder / name
    if rng.random() < 0.1:
        return _edit_text(rng, path, name)
    raw = json.loads(path.read_text())
    places = list(_places(raw))
    place = places[rng.integers(len(places))]
    done, tellable = _edit_value(rng, raw, place)
    path.write_text(json.dumps(raw))
    return f"{name}: {'.'.join(map(str, place))} {done}", tellable


def _places(value, at=()):
    if at:
        yield at
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from _places(item, (*at, key))


def _edit_value(rng, raw, place):
    holder = raw
    for key in place[:-1]:
        holder = holder[key]
    key = place[-1]
    works = (_remove, _retype, _retype, _enlarge, _point_out, _spoil, _repeat, _shorten, _shuffle, _nest, _change)
    done, tellable = works[rng.integers(len(works))](rng, holder, key)
    return done, tellable and not (set(place) & UNUSED or "sizes" in place)


UNUSED = {"notes", "train_error", "validation_error", "best_epoch", "vicinal"}
"""Settings that no prediction depends on; and lengths of n-grams, which no file can be compared with."""


def _remove(rng, holder, key):
    del holder[key]
    return "removed", True


def _retype(rng, holder, key):
    new, old = [None, True, "text", 3, 2.5, [], {}, [[]], {"a": 1}][rng.integers(9)], holder[key]
    holder[key] = new
    return f"became {new!r}", type(new) is not type(old)


def _enlarge(rng, holder, key):
    new, old = NUMBERS[rng.integers(len(NUMBERS))], holder[key]
    holder[key] = new
    return f"became {str(new)[:20]}", isinstance(old, bool) or not isinstance(old, int | float)


def _point_out(rng, holder, key):
    new, old = REACHING[rng.integers(len(REACHING))], holder[key]
    holder[key] = new
    return f"became {new[:40]!r}", not isinstance(old, str)


def _spoil(rng, holder, key):
    holder[key] = float(rng.choice([np.nan, np.inf, -np.inf]))
    return f"became {holder[key]}", True


def _repeat(rng, holder, key):
    if isinstance(holder, list):
        holder.append(copy.deepcopy(holder[key]))
        return "twice", True
    holder[f"{key}2"] = holder[key]
    return "under another name too", True


def _shorten(rng, holder, key):
    if isinstance(holder, list):
        del holder[len(holder) // 2 :]
        return "cut in half", True
    holder[f"{key} "] = holder.pop(key)
    return "renamed", True


def _shuffle(rng, holder, key):
    old = holder[key]
    if isinstance(old, list):
        rng.shuffle(old)
    elif isinstance(old, dict):
        holder[key] = dict(reversed(old.items()))
    return "in another order", False


def _nest(rng, holder, key):
    holder[key] = json.loads("[" * 900 + "]" * 900)
    return "deep", True


def _change(rng, holder, key):
    old = holder[key]
    if isinstance(old, bool):
        holder[key] = not old
    elif isinstance(old, int | float):
        holder[key] = old * 2 if old else 1
    elif isinstance(old, str):
        holder[key] = old[::-1]
    return "changed a little", False


def _edit_text(rng, path, name):
    raw = path.read_bytes()
    new, done = [
        (b"", "empty"),
        (raw[: len(raw) // 2], "cut"),
        (b"\xff\xfe" + raw, "no UTF-8"),
        (b"[" * 200_000 + b"]" * 200_000, "deep"),
        (b"null", "null"),
        (b"[1, 2]", "a list"),
        (b'"text"', "a string"),
        (raw * 2, "twice"),
        (raw.replace(b"1", b"Infinity", 1), "Infinity"),
    ][rng.integers(9)]
    path.write_bytes(new)
    return f"{name}: {done}", True


# Tensors.


def _edit_tensors(rng, folder, others):
    names = [name for name in TENSORS if (folder / name).is_file()]
    name = names[rng.integers(len(names))]
    path = folder / name
    if rng.random() < 0.25:
        return _edit_header(rng, path, name)
    tensors = {key: value.copy() for key, value in load_file(path).items()}
    keys = sorted(tensors)
    key = keys[rng.integers(len(keys))]
    tensors, done, tellable = _edit_tensor(rng, tensors, key)
    save_file(tensors, path)
    return f"{name}: {key} {done}", tellable


def _edit_tensor(rng, tensors, key):
    value = tensors[key]
    work = rng.integers(10)
    floating = value.dtype.kind == "f"
    if work in (0, 1) and floating and value.size:
        new = float(rng.choice([np.nan, np.inf, -np.inf]))
        value.reshape(-1)[rng.integers(value.size)] = new
        done, tellable = f"with {new}", True
    elif work == 2:
        del tensors[key]
        done, tellable = "dropped", True
    elif work == 3:
        tensors[f"{key}_"] = tensors.pop(key)
        done, tellable = "renamed", True
    elif work == 4:
        tensors[key] = value.T.copy() if value.ndim > 1 and value.shape[0] != value.shape[1] else value[..., None]
        done, tellable = f"of shape {tensors[key].shape}", True
    elif work == 5 and value.ndim and len(value):
        tensors[key] = value[: len(value) // 2].copy()
        done, tellable = "cut in half", True
    elif work == 6:
        new = np.float32 if value.dtype != np.float32 else np.float64
        tensors[key] = value.astype(np.int8 if not floating else new)
        done, tellable = f"as {tensors[key].dtype}", True
    elif work == 7:
        tensors["extra"] = np.zeros(3, np.float32)
        done, tellable = "beside another one", True
    elif work == 8 and value.size:
        tensors[key] = np.full_like(value, 1e30 if floating and value.dtype != np.float16 else 100)
        done, tellable = "huge", False
    else:
        tensors[key] = np.zeros_like(value)
        done, tellable = "zero", False
    return tensors, done, tellable


def _edit_header(rng, path, name):
    raw = path.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    header, rest = json.loads(raw[8 : 8 + length]), raw[8 + length :]
    key = sorted(k for k in header if k != "__metadata__")[0]
    work = rng.integers(7)
    if work == 0:
        header[key]["shape"] = [10**12]
    elif work == 1:
        header[key]["data_offsets"] = [0, 10**15]
    elif work == 2:
        header[key]["dtype"] = "C64"
    elif work == 3:
        header[key]["shape"] = [-1, *header[key]["shape"]]
    elif work == 4:
        header = {k: header[key] for k in header}
    elif work == 5:
        path.write_bytes(raw[: len(raw) // 2])
        return f"{name}: cut", True
    else:
        path.write_bytes((2**60).to_bytes(8, "little") + raw[8:])
        return f"{name}: a header of 2^60 bytes", True
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + rest)
    return f"{name}: header {work}", True


# Tables.


def _edit_table(rng, folder, others):
    names = sorted(str(path.relative_to(folder)) for path in folder.rglob("*.parquet"))
    name = names[rng.integers(len(names))]
    path = folder / name
    frame = pd.read_parquet(path)
    column = frame.columns[rng.integers(len(frame.columns))]
    work = rng.integers(9)
    tellable = True
    if work == 0:
        frame, done = frame.drop(columns=column), f"without {column}"
    elif work == 1:
        frame, done, tellable = frame.sample(frac=1, random_state=3), "rows shuffled", False
    elif work == 2:
        frame, done = frame[frame.columns[::-1]], "columns reversed"
        tellable = len(frame.columns) > 1
    elif work == 3:
        frame, done = frame.assign(**{column: [float(i) for i in range(len(frame))]}), f"{column} as numbers"
        tellable = name.endswith("names.parquet")
    elif work == 4:
        frame, done = frame.iloc[: len(frame) // 2], "cut in half"
    elif work == 5:
        frame, done = frame.assign(**{column: None}), f"{column} missing"
        tellable = name.endswith("names.parquet")
    elif work == 6:
        frame, done = frame.assign(**{column: frame[column].iloc[0]}), f"{column} the same in all rows"
        tellable = False
    elif work == 7:
        repeated = pa.DictionaryArray.from_arrays(pa.array([0] * 4000, pa.int32()), pa.array(["x" * 2**20]))
        bomb = pa.table(dict.fromkeys(frame.columns, repeated))
        pyarrow.parquet.write_table(bomb, path, compression="zstd")
        return f"{name}: a bomb", True
    else:
        raw = bytearray(path.read_bytes())
        for _ in range(3):
            raw[rng.integers(len(raw))] = rng.integers(256)
        path.write_bytes(raw)
        return f"{name}: bytes changed", False
    frame.to_parquet(path, index=False)
    return f"{name}: {done}", tellable


# Files.


def _edit_file(rng, folder, others):
    names = sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file() and p.name != SUMS)
    name = names[rng.integers(len(names))]
    path = folder / name
    work = rng.integers(10)
    if work in (0, 1):
        other = others[rng.integers(len(others))]
        if (other / name).is_file():
            shutil.copy(other / name, path)
            return f"{name}: that of {other.name}", False
    if work == 2:
        part = folder / rng.choice(sorted(p.name for p in folder.iterdir() if p.is_dir()))
        shutil.rmtree(part)
        return f"{part.name}: removed", part.name == "index"
    if work == 3:
        changed = bytearray(path.read_bytes())
        for _ in range(3):
            changed[rng.integers(len(changed))] = rng.integers(256)
        path.write_bytes(changed)
        return f"{name}: bytes changed", False
    raw = path.read_bytes()
    path.unlink()
    places = (_put_nothing, _put_folder, _put_pipe, _put_link_out, _put_link_inside, _put_link_to_itself, _put_empty)
    return f"{name}: {places[rng.integers(len(places))](path, raw)}", True


def _put_nothing(path, raw):
    return "missing"


def _put_folder(path, raw):
    path.mkdir()
    return "a folder"


def _put_pipe(path, raw):
    os.mkfifo(path)
    return "a named pipe"


def _put_link_out(path, raw):
    outside = path.parents[1].with_name("outside")
    outside.write_bytes(raw)
    path.symlink_to(outside)
    return "a link out of the folder"


def _put_link_inside(path, raw):
    path.with_name("inside").write_bytes(raw)
    path.symlink_to("inside")
    return "a link inside the folder"


def _put_link_to_itself(path, raw):
    path.symlink_to(path.name)
    return "a link to itself"


def _put_empty(path, raw):
    path.write_bytes(b"")
    return "empty"
