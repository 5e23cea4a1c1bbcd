// A byte each for the steps and epochs done, the lines of a metrics log, NUL, TensorBoard events: a
// run that goes on keeps some of both. Opened again, they are as they were, and every line is read.
#include "steelyard/recipes/runs/records/metrics_log.h"

#include "steelyard/recipes/runs/records/metrics_history.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace steelyard;
  if (size < 2) return 0;
  const auto parts = fuzz::split(fuzz::view(data + 2, size - 2), 2);
  const std::filesystem::path lines = fuzz::scratch_folder() / "metrics.jsonl";
  const std::filesystem::path events = fuzz::scratch_folder() / "events";
  fuzz::write_file(lines, parts[0]);
  fuzz::write_file(events, parts[1]);
  MetricsLog().open(lines, events, data[0], data[1]);
  const std::string kept_lines = fuzz::read_file(lines);
  const std::string kept_events = fuzz::read_file(events);
  fuzz::require(read_metrics(lines).unreadable_lines == 0,
                "a kept line is not read:\n" + kept_lines);
  MetricsLog().open(lines, events, data[0], data[1]);
  fuzz::require(fuzz::read_file(lines) == kept_lines, "other lines are kept the second time");
  fuzz::require(fuzz::read_file(events) == kept_events, "other events are kept the second time");
  return 0;
}
