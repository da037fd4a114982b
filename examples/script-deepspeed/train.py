"""As scripts with Hugging Face's Trainer go: dataclasses of arguments, `--deepspeed FILE`, a small model."""

from dataclasses import dataclass, field

import torch
from torch.utils.data import Dataset
from transformers import AutoModelForCausalLM, HfArgumentParser, LlamaConfig, Trainer, TrainingArguments


@dataclass
class ModelArguments:
    hidden_size: int = field(default=32)


class Sequences(Dataset):
    def __len__(self):
        return 32

    def __getitem__(self, index):
        ids = torch.arange(index, index + 16) % 64
        return {"input_ids": ids, "labels": ids.clone()}


def main():
    model_args, training_args = HfArgumentParser((ModelArguments, TrainingArguments)).parse_args_into_dataclasses()
    width = model_args.hidden_size
    config = LlamaConfig(
        hidden_size=width, intermediate_size=2 * width, num_hidden_layers=2, num_attention_heads=4, vocab_size=64
    )
    model = AutoModelForCausalLM.from_config(config)
    trainer = Trainer(model=model, args=training_args, train_dataset=Sequences())
    result = trainer.train(resume_from_checkpoint=training_args.resume_from_checkpoint)
    trainer.save_model()
    if trainer.is_world_process_zero():
        stage = trainer.model_wrapped.zero_optimization_stage()
        print(f"stage {stage} steps {result.global_step} loss {result.training_loss:.4f}", flush=True)


if __name__ == "__main__":
    main()
