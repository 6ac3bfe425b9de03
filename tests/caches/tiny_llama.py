"""Writes a random-weight Llama and a word tokenizer into a folder. Run by an engine's own Python, which has the
libraries for it: python tiny_llama.py FOLDER"""

from __future__ import annotations

import sys

VOCABULARY = 1_000
CONTEXT = 1_024  # tokens


def main(folder: str) -> None:
    import torch
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    torch.manual_seed(0)
    shape = {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 64}
    LlamaForCausalLM(
        LlamaConfig(
            vocab_size=VOCABULARY, max_position_embeddings=CONTEXT, bos_token_id=1, eos_token_id=2, **shape, **heads
        )
    ).to(torch.bfloat16).save_pretrained(folder)
    words = {"<unk>": 0, "<s>": 1, "</s>": 2} | {f"w{number}": number for number in range(3, VOCABULARY)}
    tokenizer = Tokenizer(WordLevel(words, unk_token="<unk>"))
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="<unk>", bos_token="<s>", eos_token="</s>"
    ).save_pretrained(folder)


if __name__ == "__main__":
    main(sys.argv[1])
