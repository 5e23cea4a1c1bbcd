// A model.safetensors as the runtime gets it from its caller's memory: as it is, and with right
// checksums. What the C face loads runs, both engines give the same codes, and everything else is
// refused as an invalid model.
#include <array>
#include <cstring>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>

#include "steelyard/framework/files/safetensors.h"
#include "steelyard/framework/files/sha256.h"
#include "steelyard/runtime/graph_file.h"
#include "steelyard/runtime/steelyard_runtime.h"
#include "tests/fuzz/graph_engines.h"

// libFuzzer's; absent where the corpus alone is run.
extern "C" __attribute__((weak)) std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size,
                                                              std::size_t max_size);

namespace steelyard::deploy {
namespace {

using Json = nlohmann::json;
using Model = std::unique_ptr<steelyard_model, decltype(&steelyard_model_destroy)>;

// The bytes with the digests that a checkpoint needs. Throws InputError for no safetensors file.
std::string sealed(std::string_view bytes) {
  const TensorFile file =
      read_safetensors(SafetensorsReader(std::make_shared<const InputFile>(bytes, "model")));
  const std::vector<NamedTensor> ordered = safetensors_order(file.tensors);
  const std::vector<SafetensorsEntry> entries = safetensors_layout(ordered);
  TensorFileMetadata metadata = file.metadata;
  metadata["format"] = "steelyard-checkpoint";
  metadata["format_version"] = std::string(1, '1');  // gcc 12 warns falsely of "1"
  std::string tensors;
  for (const NamedTensor& t : ordered) {
    const std::string_view raw(static_cast<const char*>(t.tensor.raw()),
                               static_cast<std::size_t>(t.tensor.bytes()));
    metadata["sha256:" + t.name] = sha256_of(raw);
    tensors += raw;
  }
  metadata["sha256"] = std::string(64, '0');
  metadata["sha256"] = sha256_of(encode_safetensors_header(entries, metadata));
  return encode_safetensors_header(entries, metadata) + tensors;
}

// Null where the C face refuses it.
Model loaded(std::string_view bytes) {
  std::array<char, 4096> message{};
  steelyard_model* model = nullptr;
  const auto status = steelyard_model_load_bytes(bytes.data(), bytes.size(), &model, message.data(),
                                                 message.size());
  if (status != STEELYARD_RUNTIME_OK) {
    fuzz::require(status == STEELYARD_RUNTIME_INVALID_MODEL,
                  std::string("refused otherwise than as an invalid model: ") + message.data());
    fuzz::require(model == nullptr, "a model that was refused");
    fuzz::require_one_line(message.data());
  }
  return {model, &steelyard_model_destroy};
}

void run(const steelyard_model& model, std::int64_t samples) {
  steelyard_sample in{}, out{};
  const bool told = steelyard_model_input(&model, &in) == STEELYARD_RUNTIME_OK &&
                    steelyard_model_output(&model, &out) == STEELYARD_RUNTIME_OK;
  if (!told) return;  // of more than eight dimensions
  const std::size_t width = in.dtype == STEELYARD_RUNTIME_U8 ? 1 : sizeof(float);
  std::vector<std::uint8_t> x(static_cast<std::size_t>(samples * in.elements) * width + 1);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<std::uint8_t>(i * 37 % 101);
  std::vector<float> y(static_cast<std::size_t>(samples * out.elements) + 1);
  std::array<char, 4096> message{};
  const auto status =
      steelyard_model_run(&model, samples, x.data(), x.size() - 1, y.data(),
                          (y.size() - 1) * sizeof(float), message.data(), message.size());
  if (status == STEELYARD_RUNTIME_OK) return;
  fuzz::require(status == STEELYARD_RUNTIME_INVALID_ARGUMENT,  // it has made NaN
                std::string("a model that loads does not run: ") + message.data());
  fuzz::require_one_line(message.data());
}

// A number, text or list somewhere in the JSON becomes another one.
void change(Json& json, std::minstd_rand& random) {
  if (json.is_structured() && !json.empty() && random() % 16 != 0) {
    auto at = json.begin();
    std::advance(at, static_cast<std::ptrdiff_t>(random() % json.size()));
    if (random() % 64 != 0) return change(*at, random);
    if (json.is_object() || random() % 2 == 0) {
      json.erase(at);
    } else {
      json.push_back(Json(*at));
    }
    return;
  }
  if (json.is_number() && random() % 2 == 0) {
    json = json.is_number_integer() ? Json(json.get<std::int64_t>() + (random() % 2 == 0 ? 1 : -1))
                                    : Json(json.get<double>() * 0.5);
    return;
  }
  const std::array others{Json(0),
                          Json(-1),
                          Json(2),
                          Json(256),
                          Json(std::int64_t{1} << 31),
                          Json(std::int64_t{1} << 32),
                          Json(std::int64_t{1} << 62),
                          Json(std::numeric_limits<std::int64_t>::max()),
                          Json(std::numeric_limits<std::int64_t>::min()),
                          Json(std::uint64_t{1} << 63),
                          Json(std::numeric_limits<std::uint64_t>::max()),
                          Json(1e300),
                          Json(1e-45),
                          Json(),
                          Json(""),
                          Json::array(),
                          Json(true)};
  json = others[random() % others.size()];
}

// Another file: the graph, the header or the tensors change, or any bytes.
std::string changed_file(std::string_view file, std::size_t max_size, unsigned seed) {
  std::minstd_rand random(seed);
  const auto any = [&](std::string_view part) {
    std::vector<std::uint8_t> bytes(std::max(max_size, part.size()) + 1);
    std::copy(part.begin(), part.end(), bytes.begin());
    const std::size_t size = LLVMFuzzerMutate(bytes.data(), part.size(), max_size);
    return std::string(fuzz::view(bytes.data(), size));
  };
  constexpr const char* kMetadata = "__metadata__";
  std::uint64_t length = 0;
  const unsigned kind = random() % 8;
  if (kind == 0 || file.size() < sizeof length) return any(file);
  std::memcpy(&length, file.data(), sizeof length);
  if (length > file.size() - sizeof length) return any(file);
  Json header = Json::parse(file.substr(sizeof length, length), nullptr, false);
  std::string tensors(file.substr(sizeof length + length));
  if (!header.is_object()) return any(file);
  if (kind == 1) {
    tensors = any(tensors);
  } else if (kind == 2 || !header.contains(kMetadata) || !header[kMetadata].contains("graph") ||
             !header[kMetadata]["graph"].is_string()) {
    change(header, random);
  } else {
    Json& text = header[kMetadata]["graph"];
    Json graph = Json::parse(text.get<std::string>(), nullptr, false);
    if (kind == 3 || graph.is_discarded()) {
      text = any(text.get<std::string>());
    } else {
      change(graph, random);
      text = graph.dump(-1, ' ', false, Json::error_handler_t::replace);
    }
  }
  const std::string json = header.dump(-1, ' ', false, Json::error_handler_t::replace);
  const std::string bytes = fuzz::safetensors_bytes(json, tensors);
  return bytes.size() <= max_size ? bytes : any(file);
}

}  // namespace
}  // namespace steelyard::deploy

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t max_size, unsigned seed) {
  using namespace steelyard;
  const std::string other = deploy::changed_file(fuzz::view(data, size), max_size, seed);
  std::copy(other.begin(), other.end(), data);
  return other.size();
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace steelyard;
  deploy::loaded(fuzz::view(data, size));
  std::string bytes;
  const bool read = fuzz::accepted([&] {
    try {
      bytes = deploy::sealed(fuzz::view(data, size));
    } catch (const std::invalid_argument&) {  // no file has such tensors
    }
  });
  if (!read || bytes.empty()) return 0;
  const deploy::Model model = deploy::loaded(bytes);
  if (!model) return 0;
  const deploy::Graph graph = deploy::graph_of_bytes(bytes, "model");
  if (!deploy::is_quick(graph)) return 0;
  for (const std::int64_t samples : {1, 3}) deploy::run(*model, samples);
  deploy::check_engines(graph);
  return 0;
}
