#include "steelyard/recipes/searches/search_state.h"

#include <nlohmann/json.hpp>

#include "steelyard/framework/files/files.h"
#include "steelyard/framework/files/folders.h"
#include "steelyard/framework/files/sha256.h"
#include "steelyard/framework/tensor/error.h"
#include "steelyard/framework/tensor/printable.h"

namespace steelyard {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kFile = "search.json";
constexpr const char* kOtherSeconds = "other.seconds";  // a number
constexpr std::uint64_t kMostStateBytes = std::uint64_t{16} << 20;

Json json_of(const OutputFidelity& output) {
  Json json{{"name", output.name},
            {"sqnr_db", output.sqnr_db},
            {"sure_db", output.sure_db},
            {"worst_sample", output.worst_sample},
            {"worst_sqnr_db", output.worst_sqnr_db}};
  if (output.agreement) {
    json["agreement"] = *output.agreement;
    json["decisions"] = output.decisions;
    json["boxes"] = output.boxes;
    json["may_be_numbers"] = output.may_be_numbers;
  }
  return json;
}

OutputFidelity output_from(const Json& json) {
  OutputFidelity output{.name = json.at("name"),
                        .sqnr_db = json.at("sqnr_db"),
                        .sure_db = json.at("sure_db"),
                        .worst_sample = json.at("worst_sample"),
                        .worst_sqnr_db = json.at("worst_sqnr_db")};
  if (json.contains("agreement")) {
    output.agreement = json.at("agreement").get<double>();
    output.decisions = json.at("decisions");
    output.boxes = json.value("boxes", false);
    output.may_be_numbers = json.value("may_be_numbers", false);
  }
  return output;
}

Json json_of(const SearchStep& step) {
  Json json{{"name", step.name},
            {"what", step.what},
            {"checkpoint", step.checkpoint},
            {"seconds", step.seconds},
            {"bytes", step.costs.bytes},
            {"macs", step.costs.macs},
            {"integer_macs", step.costs.integer_macs},
            {"bit_operations", step.costs.bit_operations},
            {"outputs", Json::array()}};
  if (step.score) json["score"] = *step.score;
  for (const OutputFidelity& output : step.fidelity.outputs) {
    json["outputs"].push_back(json_of(output));
  }
  return json;
}

SearchStep step_from(const Json& json) {
  SearchStep step{.name = json.at("name"),
                  .what = json.at("what"),
                  .checkpoint = json.at("checkpoint"),
                  .costs = {.macs = json.at("macs"),
                            .integer_macs = json.at("integer_macs"),
                            .bit_operations = json.at("bit_operations"),
                            .bytes = json.at("bytes")},
                  .seconds = json.at("seconds")};
  if (json.contains("score")) step.score = json.at("score").get<double>();
  for (const Json& output : json.at("outputs")) {
    step.fidelity.outputs.push_back(output_from(output));
  }
  return step;
}

Json json_of(const LayerRanking& ranking) {
  return {{"order", ranking.order}, {"layers", ranking.layers}, {"skipped", ranking.skipped}};
}

LayerRanking ranking_from(const Json& json) {
  return {.order = json.at("order"), .layers = json.at("layers"), .skipped = json.at("skipped")};
}

const std::filesystem::path& made(const std::filesystem::path& folder) {
  create_folders(folder);
  return folder;
}

std::string digest_of_text(const std::string& text) {
  Sha256 hash;
  hash.update(text);
  return hash.hex();
}

}  // namespace

bool search_begun(const std::filesystem::path& folder) { return path_exists(folder / kFile); }

SearchState::SearchState(std::filesystem::path folder, const std::string& key, bool overwrites)
    : folder_(std::move(folder)), alone_(made(folder_)), key_(digest_of_text(key)) {
  const std::filesystem::path file = folder_ / kFile;
  if (overwrites && path_exists(file)) {
    std::filesystem::remove_all(folder_ / "steps");
    std::filesystem::remove(file);
  }
  if (!path_exists(file)) {
    const std::filesystem::path steps = folder_ / "steps";
    if (path_exists(steps)) {
      throw InputError(printable(steps.string()) +
                       ": is there, and no search made it: --run-dir names another folder");
    }
    write();
    return;
  }
  const std::string name = printable(file.string());
  Json json;
  try {
    json = Json::parse(read_file(file, kMostStateBytes));
    if (json.at("key") != key_ && json.at("steps").empty()) {  // it ended before it had done a step
      std::filesystem::remove_all(folder_ / "steps");
      write();
      return;
    }
    if (json.at("key") != key_) {
      throw InputError(name +
                       ": the folder holds a search with other options, data or another model: "
                       "--overwrite begins again, --run-dir names another folder");
    }
    for (const Json& step : json.at("steps")) steps_.push_back(step_from(step));
    json.at("numbers").get_to(numbers_);
    if (json.contains("failures")) json.at("failures").get_to(failures_);
    if (json.contains("ranking")) ranking_ = ranking_from(json.at("ranking"));
  } catch (const nlohmann::json::exception& error) {
    throw InputError(name + ": is damaged: " + printable(error.what()) +
                     ": --overwrite begins again");
  }
}

const SearchStep* SearchState::step(const std::string& name) const {
  for (const SearchStep& step : steps_) {
    if (step.name == name) return &step;
  }
  return nullptr;
}

void SearchState::add(SearchStep step) {
  steps_.push_back(std::move(step));
  write();
}

double SearchState::seconds() const {
  double sum = 0;
  for (const SearchStep& step : steps_) sum += step.seconds;
  return sum + number(kOtherSeconds).value_or(0);
}

void SearchState::add_seconds(double more) {
  set_number(kOtherSeconds, number(kOtherSeconds).value_or(0) + more);
}

const std::string* SearchState::failure(const std::string& name) const {
  const auto found = failures_.find(name);
  return found == failures_.end() ? nullptr : &found->second;
}

void SearchState::add_failure(const std::string& name, const std::string& what, double seconds) {
  failures_[name] = what;
  add_seconds(seconds);
}

void SearchState::set_ranking(LayerRanking ranking) {
  ranking_ = std::move(ranking);
  write();
}

std::optional<double> SearchState::number(const std::string& name) const {
  const auto found = numbers_.find(name);
  return found == numbers_.end() ? std::nullopt : std::optional(found->second);
}

void SearchState::set_number(const std::string& name, double value) {
  numbers_[name] = value;
  write();
}

void SearchState::write() const {
  Json json{
      {"key", key_}, {"steps", Json::array()}, {"numbers", numbers_}, {"failures", failures_}};
  if (ranking_) json["ranking"] = json_of(*ranking_);
  for (const SearchStep& step : steps_) json["steps"].push_back(json_of(step));
  write_file_atomic(folder_ / kFile, json.dump(2) + "\n");
}

}  // namespace steelyard
