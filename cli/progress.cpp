#include "cli/progress.h"

#include <fmt/core.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>

namespace steelyard::cli {
namespace {

constexpr std::chrono::milliseconds kRedraw{100};
constexpr std::chrono::seconds kPlainLine{10};

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// "1:02:03", "2:03".
std::string clock_text(double seconds) {
  const std::int64_t s = std::llround(seconds);
  if (s >= 3600) return fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
  return fmt::format("{}:{:02}", s / 60, s % 60);
}

std::size_t terminal_columns() {
  winsize size{};
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

}  // namespace

void show(std::string_view text) {
  const bool printed = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  if (std::fflush(stdout) == 0 && printed) return;
  if (std::freopen("/dev/null", "w", stdout) == nullptr) std::clearerr(stdout);
}

Progress::Progress(std::int64_t epochs, std::int64_t batch_size, bool terminal)
    : epochs_(epochs),
      batch_size_(batch_size),
      terminal_(terminal),
      begin_(Clock::now()),
      epoch_begin_(begin_),
      last_drawn_(begin_) {}

Progress::~Progress() {
  if (has_bar_) show("\n");
}

void Progress::on_epoch_begin(std::int64_t) { epoch_begin_ = Clock::now(); }

void Progress::on_step_end(const StepReport& report) {
  if (first_step_ < 0) {
    // The first step also builds caches: the rate counts from its end.
    first_step_ = report.step;
    begin_ = Clock::now();
    return;
  }
  if (Clock::now() - last_drawn_ < (terminal_ ? Clock::duration(kRedraw) : kPlainLine)) return;
  last_drawn_ = Clock::now();
  const double elapsed = std::max(seconds_since(begin_), 1e-9);
  draw(report, static_cast<double>((report.step - first_step_) * batch_size_) / elapsed);
}

void Progress::draw(const StepReport& report, double samples_per_second) {
  const double remaining = static_cast<double>((report.total_steps - report.step) * batch_size_) /
                           std::max(samples_per_second, 1e-9);
  const std::string text =
      fmt::format("epoch {}/{}  step {}/{}  loss {:.4f}  lr {:.4g}  {:.0f} samples/s  {} left",
                  report.epoch + 1, epochs_, report.step, report.total_steps, report.loss(),
                  report.lr, samples_per_second, clock_text(remaining));
  if (!terminal_) {
    show(text + "\n");
    return;
  }
  const std::size_t columns = terminal_columns();
  std::string line = text.substr(0, columns - 1);
  if (columns > text.size() + 14) {
    const std::size_t width = std::min<std::size_t>(columns - text.size() - 6, 30);
    const auto done =
        static_cast<std::size_t>(static_cast<double>(width) * static_cast<double>(report.step) /
                                 static_cast<double>(report.total_steps));
    line = fmt::format("[{:=<{}}{: <{}}]  {}", "", done, "", width - done, text);
  }
  show("\r\x1b[K" + line);
  has_bar_ = true;
}

void Progress::clear_bar() {
  if (std::exchange(has_bar_, false)) show("\r\x1b[K");
}

void Progress::on_epoch_end(const EpochReport& report) {
  clear_bar();
  std::string line =
      fmt::format("epoch {}/{}  train loss {:.4f}", report.epoch + 1, epochs_, report.train_loss);
  if (report.validation) {
    line += fmt::format("  validation loss {:.4f}", report.validation->loss);
    if (const auto metric = main_metric(*report.validation)) line += "  " + metric_text(*metric);
  }
  show(fmt::format("{}  ({})\n", line, clock_text(seconds_since(epoch_begin_))));
  if (!report.collapse.empty()) show(fmt::format("warning: {}\n", report.collapse));
}

}  // namespace steelyard::cli
