"""Tiny random Hugging Face models in folders."""

import json
import warnings

import torch

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "red", "blue", "shoes", "##s", "hat", ".", "shoe", "old"]
SIZES = {"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 24}


def save(model, folder):
    """Write a model as a folder; gives the model."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.eval().save_pretrained(folder)
    return model


def tiny_bert(folder):
    """A model of text in ``folder``; gives the folder."""
    import transformers

    torch.manual_seed(0)
    config = transformers.BertConfig(vocab_size=len(WORDS), max_position_embeddings=12, **SIZES)
    save(transformers.BertModel(config), folder)
    (folder / "vocab.txt").write_text("\n".join(WORDS))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "BertTokenizer"}))
    return folder
