"""A bank as a dictionary of tensors, as modules have one."""

import json
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from vicinal.index.bank_files import config_of, names_of, stored_columns, take_names
from vicinal.index.bank_schema import SavedBank, check_columns
from vicinal.index.columns import Columns
from vicinal.index.forms import Form

if TYPE_CHECKING:
    from vicinal.index.bank import NeighborBank


def state_of(bank: "NeighborBank") -> dict[str, Tensor]:
    """See :meth:`vicinal.index.NeighborBank.state_dict`."""
    state = {name: torch.from_numpy(bank._columns.whole(name)) for name in stored_columns(bank)}
    told = config_of(bank, "").model_dump() | {name: values.tolist() for name, values in names_of(bank).items()}
    state["told"] = torch.frombuffer(bytearray(json.dumps(told).encode()), dtype=torch.uint8)
    return state


def take_state(bank: "NeighborBank", state: dict[str, Tensor]) -> None:
    """See :meth:`vicinal.index.NeighborBank.load_state_dict`."""
    try:
        told = json.loads(bytes(state["told"].tolist()))
        names = {name: told.pop(name, []) for name in ("id", "group")}
        config = SavedBank.model_validate_json(json.dumps(told))
    except (KeyError, ValueError) as wrong:
        raise ValueError("state: expected the state of a bank, got other content") from wrong
    if (config.dim, config.storage, config.exact) != (bank.dim, bank.storage, bank.exact):
        raise ValueError(
            f"state: expected dim={bank.dim}, storage={bank.storage!r}, exact={bank.exact}, as this bank, "
            f"got {config.dim}, {config.storage!r}, {config.exact}"
        )
    tensors = {name: value.detach().cpu().numpy().copy() for name, value in state.items() if name != "told"}
    bank._form = None if config.form is None else Form(**config.form.model_dump() | {"rows": False})
    bank._payload, bank._places, bank._id_names, bank._group_names = None, None, None, None
    check_columns("state", config, tensors)
    take_names(bank, config, tensors, names)
    bank._columns = Columns(tensors)
    bank.distrust("state")
