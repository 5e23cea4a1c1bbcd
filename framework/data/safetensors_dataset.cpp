#include "steelyard/framework/data/safetensors_dataset.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "steelyard/framework/data/arrays/stored_array.h"
#include "steelyard/framework/data/class_names.h"
#include "steelyard/framework/data/named_inputs.h"
#include "steelyard/framework/files/files.h"
#include "steelyard/framework/files/folders.h"
#include "steelyard/framework/files/safetensors.h"
#include "steelyard/framework/tensor/error.h"
#include "steelyard/framework/tensor/printable.h"
#include "steelyard/framework/tensor/suggest.h"

namespace steelyard {
namespace {

namespace fs = std::filesystem;

StoredArray::Kind array_kind_of(DType dtype) {
  using Kind = StoredArray::Kind;
  if (dtype == DType::kBool) return Kind::kBool;
  if (dtype == DType::kU8) return Kind::kUnsigned;
  if (dtype == DType::kBF16) return Kind::kBFloat;
  return is_floating(dtype) ? Kind::kFloat : Kind::kSigned;
}

// The tensors of a file, whose values stay there.
class TensorsInFile {
 public:
  explicit TensorsInFile(const fs::path& path) : reader_(path) {}

  std::string name() const { return reader_.name(); }

  // Throws where one of `names` is missing or, if they must be all, where there is another tensor.
  void require(const std::vector<std::string>& names, bool all) const {
    std::string expected = name() + ": expected the tensor" + (names.size() == 1 ? "" : "s");
    for (std::size_t i = 0; i < names.size(); ++i) {
      expected += (i == 0 ? " " : i + 1 < names.size() ? ", " : " and ") + printable(names[i]);
    }
    const std::string missing = missing_text(names);
    for (const SafetensorsEntry& entry : reader_.header().entries) {
      if (!all || std::find(names.begin(), names.end(), entry.name) != names.end()) continue;
      throw InputError(expected + ", got '" + printable(entry.name) + "'" + missing);
    }
    if (!missing.empty()) throw InputError(expected + missing);
  }

  // One that is there.
  StoredArray array(const std::string& tensor) const {
    const SafetensorsEntry& entry = *find(tensor);
    return {range_of_file(reader_.file(), 0, reader_.file()->size()),
            reader_.header_bytes().size() + entry.begin,
            name() + ": " + printable(tensor),
            array_kind_of(entry.dtype),
            static_cast<std::int64_t>(dtype_bytes(entry.dtype)),
            entry.shape};
  }

 private:
  // ", 'soudn' is missing (did you mean 'sound'?)" of the first that is; else nothing.
  std::string missing_text(const std::vector<std::string>& names) const {
    for (const std::string& wanted : names) {
      if (find(wanted) != nullptr) continue;
      std::vector<std::string> others;  // that nobody has asked for
      for (const SafetensorsEntry& entry : reader_.header().entries) {
        if (std::find(names.begin(), names.end(), entry.name) == names.end())
          others.push_back(entry.name);
      }
      const std::string near = nearest_word(wanted, others);
      return ", '" + printable(wanted) + "' is missing" +
             (near.empty() ? "" : " (did you mean '" + printable(near) + "'?)");
    }
    return "";
  }

  const SafetensorsEntry* find(const std::string& tensor) const {
    const auto& entries = reader_.header().entries;
    const auto found = std::find_if(entries.begin(), entries.end(),
                                    [&](const SafetensorsEntry& e) { return e.name == tensor; });
    return found == entries.end() ? nullptr : &*found;
  }

  SafetensorsReader reader_;
};

std::vector<std::string> input_names(const std::vector<std::string>& names) {
  return names.empty() ? std::vector<std::string>{"inputs"} : names;
}

// The tensors of those names; where there is no list, `inputs`.
void set_inputs(Dataset& dataset, const TensorsInFile& file,
                const std::vector<std::string>& names) {
  if (names.empty()) {
    dataset.source = array_samples(file.array("inputs"));
    return;
  }
  std::vector<InputSource> inputs;
  for (const std::string& name : names) inputs.push_back({name, array_samples(file.array(name))});
  set_named_inputs(dataset, inputs, file.name());
}

// Whatever else is in the file.
Dataset load_inputs(const TensorsInFile& file, const std::vector<std::string>& inputs) {
  file.require(input_names(inputs), /*all=*/false);
  Dataset dataset;
  set_inputs(dataset, file, inputs);
  return dataset;
}

Dataset load_file(const fs::path& path, const DatasetRequest& request) {
  const std::vector<std::string>& inputs = request.inputs;
  const TensorsInFile file(path);
  if (!request.labels) {
    Dataset dataset = load_inputs(file, inputs);
    drop_targets(dataset);
    return dataset;
  }
  std::vector<std::string> expected = input_names(inputs);
  expected.emplace_back("targets");
  file.require(expected, /*all=*/true);
  Dataset dataset;
  set_inputs(dataset, file, inputs);
  dataset.targets = array_targets(file.array("targets"));
  require_target_for_each(dataset, file.name());
  return dataset;
}

// "train-00001-of-00004.safetensors".
struct Shard {
  std::int64_t number = 0;
  std::int64_t count = 0;
  fs::path path;
};

// The shard that a file is, where `split` is "train".
std::optional<Shard> shard_of(const fs::path& path, const std::string& split) {
  const std::string file = path.filename().string();
  std::string_view rest(file);
  const auto take = [&](std::string_view text) {
    if (!rest.starts_with(text)) return false;
    rest.remove_prefix(text.size());
    return true;
  };
  const auto take_number = [&](std::int64_t& number) {
    const auto [stop, error] = std::from_chars(rest.data(), rest.data() + rest.size(), number);
    rest.remove_prefix(static_cast<std::size_t>(stop - rest.data()));
    return error == std::errc() && number >= 0;
  };
  Shard shard{.path = path};
  const bool is_shard = take(split + "-") && take_number(shard.number) && take("-of-") &&
                        take_number(shard.count) && rest == ".safetensors";
  return is_shard ? std::optional(shard) : std::nullopt;
}

// By their numbers, all of them.
std::vector<Shard> shards_of(const fs::path& folder, const std::string& split) {
  std::vector<Shard> shards;
  for (const fs::path& path : folder_entries(folder)) {
    if (auto shard = shard_of(path, split)) shards.push_back(std::move(*shard));
  }
  std::ranges::stable_sort(shards, {}, &Shard::number);
  for (std::size_t i = 0; i < shards.size(); ++i) {
    const Shard& shard = shards[i];
    const std::string file = printable(shard.path.string());
    if (shard.count != shards[0].count) {
      throw InputError(file + ": expected a shard of " + std::to_string(shards[0].count) + ", as " +
                       printable(shards[0].path.filename().string()) + " is");
    }
    const std::int64_t expected =
        std::min<std::int64_t>(shards[0].number, 1) + static_cast<std::int64_t>(i);
    if (shard.number != expected) {
      throw InputError(file + ": expected shard " + std::to_string(expected) + " before it");
    }
  }
  if (!shards.empty() && std::ssize(shards) != shards[0].count) {
    throw InputError(printable((folder / split).string()) + "-*.safetensors: expected " +
                     std::to_string(shards[0].count) + " shards, got " +
                     std::to_string(shards.size()));
  }
  return shards;
}

// The files of a split, and what messages about all of them call them.
struct SplitFiles {
  std::vector<fs::path> paths;
  std::string name;
};

SplitFiles files_of(const fs::path& folder, const std::string& split) {
  const fs::path whole = folder / (split + ".safetensors");
  const std::vector<Shard> shards = shards_of(folder, split);
  if (shards.empty()) return {{whole}, printable(whole.string())};
  if (path_exists(whole)) {
    throw InputError(printable(whole.string()) +
                     ": expected either this file or shards of it, got " +
                     printable(shards[0].path.filename().string()) + " too");
  }
  SplitFiles files{{}, printable((folder / split).string()) + "-*.safetensors"};
  for (const Shard& shard : shards) files.paths.push_back(shard.path);
  return files;
}

// The targets of all parts, which have one dtype and one shape of a sample.
Tensor joined_targets(const std::vector<Dataset>& parts, std::int64_t samples) {
  Shape shape = parts[0].targets.shape();
  shape[0] = samples;
  Tensor targets = Tensor::empty(shape, parts[0].targets.dtype());
  auto* to = static_cast<std::byte*>(targets.raw());
  for (const Dataset& part : parts) {
    const auto bytes = static_cast<std::size_t>(part.targets.bytes());
    std::memcpy(to, part.targets.raw(), bytes);
    to += bytes;
  }
  return targets;
}

Dataset load_split(const SplitFiles& files, const DatasetRequest& request) {
  std::vector<Dataset> parts;
  std::vector<std::shared_ptr<const SampleSource>> sources;
  for (const fs::path& path : files.paths) {
    parts.push_back(load_file(path, request));
    sources.push_back(parts.back().source);
    require_same_samples({parts[0], parts.back()}, printable(path.string()),
                         printable(files.paths[0].filename().string()));
  }
  if (parts.size() == 1) return parts[0];
  Dataset joined = parts[0];
  joined.source = std::make_shared<ConcatenatedSamples>(std::move(sources));
  if (!request.labels) {
    drop_targets(joined);
  } else {
    joined.targets = joined_targets(parts, joined.source->size());
  }
  return joined;
}

}  // namespace

DatasetSplits load_safetensors_dataset(const DatasetRequest& request) {
  const fs::path& folder = request.path;
  if (!request.labels && path_exists(folder) && !is_folder(folder)) {
    return {load_file(folder, request), {}};
  }
  require_folder(folder, "with train.safetensors and test.safetensors");
  const SplitFiles test = files_of(folder, "test");
  const bool has_test = path_exists(test.paths[0]);
  DatasetSplits splits;
  // Classes are those of the training set, where it is read.
  std::optional<std::int64_t> classes;
  const auto load = [&](const SplitFiles& files) {
    Dataset dataset = load_split(files, request);
    if (!request.labels) return dataset;
    if (!classes) classes = count_classes(dataset.targets, files.name);
    dataset.classes = *classes;
    convert_targets(dataset, request.targets);
    validate_dataset(dataset, files.name);
    return dataset;
  };
  if (request.needs_train(has_test)) splits.train = load(files_of(folder, "train"));
  if (!request.needs_test(has_test)) return splits;
  if (!has_test) throw InputError(test.name + ": not found: expected the test set" + kOrTestAside);
  splits.test = load(test);
  if (splits.train.source) require_same_samples(splits, test.name, "train.safetensors");
  return splits;
}

Dataset load_safetensors_inputs(const fs::path& path, const std::vector<std::string>& inputs) {
  return load_inputs(TensorsInFile(path), inputs);
}

}  // namespace steelyard
