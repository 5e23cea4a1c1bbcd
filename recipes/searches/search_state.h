// What a search has found so far, in its folder's search.json.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "steelyard/recipes/runs/records/run_folder.h"
#include "steelyard/recipes/searches/layer_ranking.h"
#include "steelyard/recipes/searches/quantization_search.h"

namespace steelyard {

// Whether the folder has a search's search.json.
bool search_begun(const std::filesystem::path& folder);

class SearchState {
 public:
  // Reads the file, or begins one, also where `overwrites`; no other process gets the folder while
  // the object exists. `key`: what the search depends on. Throws InputError for a file of another
  // search that has done a step, one that is damaged, and steps that no search made.
  SearchState(std::filesystem::path folder, const std::string& key, bool overwrites);

  // Null where it has not been done.
  const SearchStep* step(const std::string& name) const;
  // Writes the file.
  void add(SearchStep step);
  // Of a step whose training diverged: what it said. Null where it has not been tried.
  const std::string* failure(const std::string& name) const;
  void add_failure(const std::string& name, const std::string& what, double seconds);
  std::optional<LayerRanking> ranking() const { return ranking_; }
  void set_ranking(LayerRanking ranking);
  // The seconds of all steps, and of what add_seconds() was told.
  double seconds() const;
  void add_seconds(double more);
  // Numbers that were decided by what a start measured, so that the next one goes on with them.
  std::optional<double> number(const std::string& name) const;
  void set_number(const std::string& name, double value);

 private:
  void write() const;

  std::filesystem::path folder_;
  RunLock alone_;
  std::string key_;  // its digest
  std::vector<SearchStep> steps_;
  std::map<std::string, double> numbers_;
  std::map<std::string, std::string> failures_;
  std::optional<LayerRanking> ranking_;
};

}  // namespace steelyard
