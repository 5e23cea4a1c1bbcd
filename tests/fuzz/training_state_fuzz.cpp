// The header's JSON, NUL, the tensors' bytes: a checkpoint whose checksums are right, from which a
// run is to go on.
#include "steelyard/framework/train/trainer.h"
#include "steelyard/layers/weighted/linear.h"
#include "tests/fuzz/fuzz.h"

namespace steelyard {
namespace {

// A run of two epochs with two steps each.
class SmallRun {
 public:
  SmallRun() : rng_(1), model_({.in_features = 3, .out_features = 2}, rng_) {
    data_.inputs = Tensor::full({4, 3}, 0.5);
    data_.targets = Tensor::zeros({4}, DType::kI64);
    data_.classes = 2;
    options_.epochs = 2;
    options_.run_dir = fuzz::scratch_folder();
    restart();
  }

  // What a checkpoint holds is taken over in place: every input starts from the same values.
  Trainer& restart() {
    for (const NamedTensor& tensor : module_state(model_)) tensor.tensor.fill(0.25);
    trainer_.reset();
    optimizer_.emplace(model_.named_parameters(), AdamWOptions{});
    LoaderOptions loader;
    loader.batch_size = 2;
    trainer_.emplace(model_, *optimizer_, data_, Dataset{}, loader, options_,
                     std::vector<TrainerCallback*>{});
    return *trainer_;
  }

 private:
  Rng rng_;
  Linear model_;
  Dataset data_;
  TrainerOptions options_;
  std::optional<AdamW> optimizer_;
  std::optional<Trainer> trainer_;
};

// A run that goes on and is stopped at once saves what it was given.
void check_going_on(SmallRun& run, Trainer& trainer) {
  const std::atomic<bool> stop = true;
  const std::int64_t step = trainer.step();
  try {
    if (!trainer.run(stop).interrupted) return;
  } catch (const TrainingDiverged& error) {
    fuzz::require_one_line(error.what());
    return;
  }
  const std::filesystem::path last = fuzz::scratch_folder() / "last.safetensors";
  Trainer& again = run.restart();
  again.restore(load_checkpoint(last), "last");
  fuzz::require(again.step() == step, "a run that went on saved another step");
}

}  // namespace
}  // namespace steelyard

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace steelyard;
  static fuzz::MemoryFile input;
  static SmallRun run;
  const auto parts = fuzz::split(fuzz::view(data, size), 2);
  fuzz::accepted([&] {
    const TensorFile file =
        read_safetensors(input.holding(fuzz::safetensors_bytes(parts[0], parts[1])));
    Trainer& trainer = run.restart();
    trainer.restore(file, "checkpoint");
    check_going_on(run, trainer);
  });
  return 0;
}
