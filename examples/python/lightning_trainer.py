"""Lightning's Trainer; two lines are Steelyard's, marked by <--.

usage: lightning_trainer.py; exit code 77: no lightning.
"""
import sys
import tempfile
import warnings

from made_up_data import needs, squares, w8a8

needs("lightning")
import lightning
import torch
from torch import nn

import steelyard
import steelyard.torch

warnings.filterwarnings("ignore", module="lightning")
images, _, colours = squares(512, size=24, seed=1)
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(images, colours), 32, shuffle=True)


class Classifier(lightning.LightningModule):
    def __init__(self, model):
        super().__init__()
        self.model = model
        self.losses = []

    def training_step(self, batch, _):
        x, y = batch
        loss = nn.functional.cross_entropy(self.model(x), y)
        self.losses.append(loss.item())
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=2e-3)


lightning.seed_everything(0)
model = nn.Sequential(nn.Conv2d(3, 16, 3, stride=2, bias=False), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 16, 3),
                      nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 3))
model = steelyard.torch.Module(model.eval(), images[:2], w8a8("Conv2d", "Linear")).calibrate(loader)  # <--
classifier = Classifier(model)
classifier.train()
with tempfile.TemporaryDirectory() as folder:
    trainer = lightning.Trainer(max_epochs=3, accelerator="cpu", devices=1, logger=False, enable_progress_bar=False,
                                enable_model_summary=False, default_root_dir=folder)
    trainer.fit(classifier, loader)  # which writes a checkpoint
    again = Classifier.load_from_checkpoint(trainer.checkpoint_callback.best_model_path, model=model)
    again.eval().model.export(f"{folder}/model.onnx")  # <--
    result = steelyard.verify(again.model, images[:64])
first, last = classifier.losses[0], sum(classifier.losses[-8:]) / 8
print(f"loss {first:.3f} to {last:.3f}; {result.differing} of {result.codes} codes differ")
sys.exit(not (last < 0.5 * first and result.differing == 0 and result.same))
