"""Tiny randomly initialised models, saved by the real libraries and loaded by the real loaders."""

from __future__ import annotations

import json
import string
from pathlib import Path

#: Tokens that the tiny models read, special tokens included.
MAX_LENGTH = 32


def _save_tokenizer(folder: Path) -> int:
    from tokenizers import Tokenizer
    from tokenizers.models import WordPiece
    from tokenizers.normalizers import Lowercase
    from tokenizers.pre_tokenizers import Whitespace
    from tokenizers.processors import TemplateProcessing
    from transformers import PreTrainedTokenizerFast

    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    for letter in string.ascii_lowercase + string.digits + string.punctuation:
        pieces += [letter, f"##{letter}"]
    vocabulary = {piece: i for i, piece in enumerate(pieces)}
    tokenizer = Tokenizer(WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = Lowercase()
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", vocabulary["[CLS]"]), ("[SEP]", vocabulary["[SEP]"])],
    )
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        model_max_length=MAX_LENGTH,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
    ).save_pretrained(folder)
    return len(pieces)


def _config(vocabulary: int, **extra: object) -> object:
    from transformers import BertConfig

    return BertConfig(
        vocab_size=vocabulary,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=MAX_LENGTH,
        initializer_range=0.5,
        **extra,
    )


def save_tiny_cross_encoder(
    folder: Path, *, num_labels: int = 1, activation: str | None = None, seed: int = 0
) -> str:
    """Save a two-layer cross-encoder with a random head; return its path."""
    import torch
    from transformers import BertForSequenceClassification

    config = _config(_save_tokenizer(folder), num_labels=num_labels)
    torch.manual_seed(seed)
    model = BertForSequenceClassification(config)
    with torch.no_grad():  # logits far apart, so that an activation function would be seen
        model.classifier.weight.mul_(4.0)
    model.save_pretrained(folder)
    if activation is not None:
        file = folder / "config.json"
        saved = json.loads(file.read_text())
        saved["sentence_transformers"] = {"activation_fn": activation, "version": "5.0.0"}
        file.write_text(json.dumps(saved))
    return str(folder)


def save_tiny_embedder(
    folder: Path, *, prompts: dict[str, str] | None = None, seed: int = 0
) -> str:
    """Save a two-layer sentence-transformers model with mean pooling; return its path."""
    import torch
    from transformers import BertModel

    base = folder / "base"
    config = _config(_save_tokenizer(base))
    torch.manual_seed(seed)
    BertModel(config).save_pretrained(base)
    from sentence_transformers import SentenceTransformer

    SentenceTransformer(str(base), device="cpu", prompts=prompts or {}).save(
        str(folder / "model"), create_model_card=False
    )
    return str(folder / "model")
