// The header's JSON, NUL, the tensors' bytes: both files of a dataset, then its first batch.
#include "steelyard/framework/data/safetensors_dataset.h"

#include <cmath>

#include "steelyard/framework/data/data_loader.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace steelyard;
  const auto parts = fuzz::split(fuzz::view(data, size), 2);
  const std::string file = fuzz::safetensors_bytes(parts[0], parts[1]);
  for (const char* name : {"train.safetensors", "test.safetensors"}) {
    fuzz::write_file(fuzz::scratch_folder() / name, file);
  }
  fuzz::accepted([&] {
    const DatasetSplits splits = load_safetensors_dataset({.path = fuzz::scratch_folder()});
    validate_dataset(splits.train, "accepted");
    LoaderOptions options{.batch_size = 2, .shuffle = true, .normalization = {}, .augment = {}};
    options.normalization = compute_normalization(splits.train);
    for (const float stddev : options.normalization.stddev) {
      fuzz::require(std::isfinite(stddev) && stddev > 0, "a standard deviation is not above 0");
    }
    const Batch batch = make_batch(splits.train, options, 0, 0);
    for (const float x : batch.inputs.span<float>()) {
      fuzz::require(std::isfinite(x), "a normalized input is not finite");
    }
  });
  return 0;
}
