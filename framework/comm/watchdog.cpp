#include "steelyard/framework/comm/watchdog.h"

#include <fcntl.h>
#include <linux/sockios.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <system_error>

#include "steelyard/framework/comm/prompt_thread.h"
#include "steelyard/framework/comm/signals.h"
#include "steelyard/framework/tensor/printable.h"

namespace steelyard::comm {
namespace {

using Clock = std::chrono::steady_clock;

// What goes over a connection. Ranks run one build: they share its layout.
struct Notice {
  enum Kind : std::int32_t { kAlive, kFarewell, kLoss };
  Kind kind = kAlive;
  std::int32_t rank = 0;  // the sender; of a loss, who was lost
  std::int32_t process = 0;
  std::int64_t step = 0;
  std::array<char, 64> host{};
  std::array<char, 416> reason{};
};

template <std::size_t N>
void put(std::array<char, N>& to, const std::string& text) {
  to.fill('\0');
  std::copy_n(text.data(), std::min(text.size(), N - 1), to.data());
}

struct Connection {
  explicit Connection(Neighbour n) : neighbour(std::move(n)) {}
  Neighbour neighbour;
  bool open = true;
  bool has_parted = false;  // said farewell
  std::int64_t step = 0;    // the last that was told
  Clock::time_point heard = Clock::now();
  Notice incoming{};
  std::size_t received_bytes = 0;  // of `incoming`
};

void send_notice(const Connection& to, const Notice& notice) {
  // 500 bytes a second never fill a buffer within the deadline.
  [[maybe_unused]] const auto sent =
      send(to.neighbour.socket, &notice, sizeof notice, MSG_NOSIGNAL | MSG_DONTWAIT);
}

void write_all(int fd, const std::string& text) {
  for (std::size_t at = 0; at < text.size();) {
    const ssize_t written = write(fd, text.data() + at, text.size() - at);
    if (written <= 0 && errno != EINTR) return;
    if (written > 0) at += static_cast<std::size_t>(written);
  }
}

}  // namespace

void leave_after_loss(const std::string& message, const RankState& state) {
  // A reader of standard error that is stuck itself must not keep this process.
  std::signal(SIGALRM, SIG_DFL);
  alarm(1);
  if (const std::string log = state.log(); !log.empty()) {
    const int fd = open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (fd >= 0) write_all(fd, message + "\n");
  }
  write_all(STDERR_FILENO, (state.draws_lines() ? "\n" : "") + message + "\n");
  // mpirun waits a second between SIGTERM and SIGKILL, but not when another rank ends meanwhile:
  // those that have not heard of the loss yet would end without a word.
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  _exit(kRankLostExitCode);
}

// The thread's work. Others only ask it to end.
class Watchdog::Loop {
 public:
  Loop(int rank, std::vector<Neighbour> neighbours, const RankState& state, WatchdogOptions options)
      : rank_(rank), state_(state), options_(std::move(options)) {
    for (Neighbour& neighbour : neighbours) connections_.emplace_back(std::move(neighbour));
    wake_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (wake_ < 0) throw std::system_error(errno, std::generic_category(), "eventfd");
    send_heartbeat(Clock::now());  // not when the thread gets a processor for the first time
  }
  ~Loop() {
    for (const Connection& connection : connections_) close(connection.neighbour.socket);
    close(wake_);
  }

  void run() {
    run_promptly();
    block_sigpipe();  // standard error may be a pipe whose reader has left
    while (!ending_) {
      const auto begin = Clock::now();
      if (begin >= next_heartbeat_) send_heartbeat(begin);
      wait(begin);
      // A process that was stopped, or got no processor, has heard nobody.
      if (Clock::now() - begin > 2 * options_.heartbeat) forgive();
      for (Connection& connection : connections_) {
        if (connection.open && !read(connection)) return;
      }
      for (Connection& connection : connections_) {
        if (Clock::now() - connection.heard > options_.deadline) return report(silent(connection));
      }
    }
  }

  void end() {
    ending_ = true;
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto written = write(wake_, &one, sizeof one);
  }

  // Beside the loop's thread: a notice is sent whole, so that those of two threads do not mix.
  void bid_farewell() const {
    for (const Connection& connection : connections_) {
      send_notice(connection, own(Notice::kFarewell));
    }
  }

  // The last words, after run() has returned.
  void say_farewell() { say_last(own(Notice::kFarewell), has_ended); }
  void say_why(const std::string& reason) {
    Notice notice = own(Notice::kLoss);
    put(notice.host, host_name());
    put(notice.reason, "it left: " + reason);
    say_last(notice, has_arrived);  // the others stay for a while: what failed here is said first
  }

 private:
  Notice own(Notice::Kind kind) const {
    Notice notice;
    notice.kind = kind;
    notice.rank = rank_;
    notice.process = getpid();
    notice.step = state_.step();
    return notice;
  }

  void tell_all(const Notice& notice) {
    for (const Connection& connection : connections_) {
      if (connection.open) send_notice(connection, notice);
    }
  }

  // A socket that is closed with something unread resets the connection, and what was sent last may
  // get lost: waits until `is_done` with it.
  void say_last(const Notice& notice, bool (*is_done)(int socket)) {
    tell_all(notice);
    const auto deadline = Clock::now() + options_.deadline;
    for (const Connection& connection : connections_) {
      shutdown(connection.neighbour.socket, SHUT_WR);
    }
    for (const Connection& connection : connections_) {
      while (connection.open && !is_done(connection.neighbour.socket)) {
        if (Clock::now() > deadline) return;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    }
  }

  // The other end's system has all that was sent, or has reset the connection.
  static bool has_arrived(int socket) {
    int left = 0;
    tcp_info connection{};
    socklen_t size = sizeof connection;
    return ioctl(socket, SIOCOUTQ, &left) != 0 || left == 0 ||
           getsockopt(socket, SOL_TCP, TCP_INFO, &connection, &size) != 0 ||
           connection.tcpi_state == TCP_CLOSE;
  }

  // The other end has closed it too. Reads whatever there is.
  static bool has_ended(int socket) {
    std::array<char, 4096> unread;
    ssize_t got = 0;
    do {
      got = recv(socket, unread.data(), unread.size(), MSG_DONTWAIT);
    } while (got > 0 || (got < 0 && errno == EINTR));
    return got == 0 || (errno != EAGAIN && errno != EWOULDBLOCK);
  }

  void send_heartbeat(Clock::time_point now) {
    next_heartbeat_ = now + options_.heartbeat;
    tell_all(own(Notice::kAlive));
  }

  // Until something can be read, or it is time for something else.
  void wait(Clock::time_point now) {
    Clock::time_point until = next_heartbeat_;
    std::vector<pollfd> events{{wake_, POLLIN, 0}};
    for (const Connection& connection : connections_) {
      if (!connection.open) continue;
      events.push_back({connection.neighbour.socket, POLLIN, 0});
      until = std::min(until, connection.heard + options_.deadline);
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - now).count();
    poll(events.data(), events.size(), static_cast<int>(std::clamp<std::int64_t>(left, 0, 60000)));
  }

  void forgive() {
    for (Connection& connection : connections_) connection.heard = Clock::now();
  }

  // False when a rank was lost.
  bool read(Connection& from) {
    for (;;) {
      auto* bytes = reinterpret_cast<char*>(&from.incoming);
      const ssize_t got = recv(from.neighbour.socket, bytes + from.received_bytes,
                               sizeof(Notice) - from.received_bytes, MSG_DONTWAIT);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return true;
      if (got <= 0) {
        from.open = false;
        if (from.has_parted) return true;
        report(ended(from));
        return false;
      }
      from.received_bytes += static_cast<std::size_t>(got);
      if (from.received_bytes < sizeof(Notice)) continue;
      from.received_bytes = 0;
      from.incoming.host.back() = from.incoming.reason.back() = '\0';  // whatever was sent
      from.heard = Clock::now();
      if (!take(from)) return false;
    }
  }

  bool take(Connection& from) {
    switch (from.incoming.kind) {
      case Notice::kAlive:
        from.step = from.incoming.step;
        return true;
      case Notice::kFarewell:
        from.has_parted = true;
        return true;
      default:
        report(from.incoming);
        return false;
    }
  }

  Notice lost(const Connection& connection, const std::string& reason) const {
    Notice notice;
    notice.kind = Notice::kLoss;
    notice.rank = connection.neighbour.rank;
    notice.process = connection.neighbour.process;
    notice.step = std::max(connection.step, state_.last_common_step());
    put(notice.host, connection.neighbour.host);
    put(notice.reason, reason);
    return notice;
  }
  Notice ended(const Connection& connection) const {
    return lost(connection, "its connection ended");
  }
  Notice silent(const Connection& connection) const {
    return lost(connection, "nothing was heard from it for " +
                                std::to_string(options_.deadline.count()) + " ms");
  }

  // Tells the others, and ends this process too.
  void report(const Notice& loss) {
    tell_all(loss);
    const std::string checkpoint = state_.checkpoint();
    const std::string message =
        "lost: rank " + std::to_string(loss.rank) + " on " + printable(loss.host.data()) +
        " (process " + std::to_string(loss.process) + ", last known at step " +
        std::to_string(loss.step) + "): " + printable(loss.reason.data(), loss.reason.size()) +
        "; rank " + std::to_string(rank_) + " on " + host_name() + " stops at step " +
        std::to_string(state_.step()) + "; " +
        (checkpoint.empty() ? "nothing was saved since the start: start it again as before"
                            : "--resume continues from " + checkpoint);
    if (options_.on_loss) return options_.on_loss(message);
    leave_after_loss(message, state_);
  }

  const int rank_;
  const RankState& state_;
  const WatchdogOptions options_;
  std::vector<Connection> connections_;
  std::atomic<bool> ending_ = false;
  int wake_ = -1;
  Clock::time_point next_heartbeat_;
};

Watchdog::Watchdog(int rank, std::vector<Neighbour> neighbours, const RankState& state,
                   WatchdogOptions options)
    : loop_(std::make_unique<Loop>(rank, std::move(neighbours), state, std::move(options))),
      thread_([this] { loop_->run(); }) {}

Watchdog::~Watchdog() {
  end([](Loop&) {});
}

void Watchdog::end(const std::function<void(Loop&)>& last_words) {
  if (!thread_.joinable()) return;
  loop_->end();
  thread_.join();
  last_words(*loop_);
  loop_.reset();
}

void Watchdog::bid_farewell() {
  if (loop_) loop_->bid_farewell();
}

void Watchdog::finish() {
  end([](Loop& loop) { loop.say_farewell(); });
}

void Watchdog::leave(const std::string& reason) {
  end([&](Loop& loop) { loop.say_why(reason); });
}

}  // namespace steelyard::comm
