#include "steelyard/framework/comm/neighbours.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>  // IWYU pragma: keep
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <thread>
#include <utility>

namespace steelyard::comm {
namespace {

using Clock = std::chrono::steady_clock;
using Nonce = std::array<std::uint64_t, 2>;
constexpr std::chrono::seconds kAnswerTime{3}, kConnectTime{30};

std::string error_name() { return std::strerror(errno); }

class Socket {
 public:
  explicit Socket(int fd = -1) : fd_(fd) {}
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Socket() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

// How one rank is found; a random nonce tells it from another program at the same address.
struct Contact {
  std::string host;
  int process = 0;
  std::string port;
  std::string machine;  // equal where the loopback interface is the same
  Nonce nonce{};
  std::vector<std::string> addresses;
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Contact, host, process, port, machine, nonce, addresses)

struct Hello {
  Nonce nonce;  // of the rank that is spoken to
  int rank;     // of the one that speaks
};

std::string first_line(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::string machine_name() {
  struct stat network {};
  stat("/proc/self/ns/net", &network);
  return first_line("/proc/sys/kernel/random/boot_id") + " " + std::to_string(network.st_ino);
}

// Numeric addresses of the interfaces that are up, without loopback and those of one link only.
std::vector<std::string> own_addresses() {
  std::vector<std::string> addresses;
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return addresses;
  for (const ifaddrs* one = all; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || (one->ifa_flags & IFF_UP) == 0) continue;
    if ((one->ifa_flags & IFF_LOOPBACK) != 0) continue;
    std::array<char, INET6_ADDRSTRLEN> text{};
    if (one->ifa_addr->sa_family == AF_INET) {
      const auto* v4 = reinterpret_cast<const sockaddr_in*>(one->ifa_addr);
      inet_ntop(AF_INET, &v4->sin_addr, text.data(), text.size());
    } else if (one->ifa_addr->sa_family == AF_INET6) {
      const auto* v6 = reinterpret_cast<const sockaddr_in6*>(one->ifa_addr);
      if (IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr)) continue;
      inet_ntop(AF_INET6, &v6->sin6_addr, text.data(), text.size());
    } else {
      continue;
    }
    addresses.emplace_back(text.data());
  }
  freeifaddrs(all);
  return addresses;
}

bool wait_until_ready(int fd, short events, Clock::time_point deadline) {
  for (;;) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd one{fd, events, 0};
    const int ready = poll(&one, 1, static_cast<int>(std::max<std::int64_t>(left, 0)));
    if (ready > 0) return true;
    if (ready == 0 || errno != EINTR) return false;
  }
}

bool send_all(int fd, const void* data, std::size_t bytes) {
  return send(fd, data, bytes, MSG_NOSIGNAL) == static_cast<ssize_t>(bytes);  // far below a buffer
}

bool receive_all(int fd, void* data, std::size_t bytes, Clock::time_point deadline) {
  auto* at = static_cast<char*>(data);
  while (bytes > 0) {
    if (!wait_until_ready(fd, POLLIN, deadline)) return false;
    const ssize_t got = recv(fd, at, bytes, 0);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) return false;
    if (got < 0) continue;
    at += got;
    bytes -= static_cast<std::size_t>(got);
  }
  return true;
}

Socket new_socket(int family) {
  return Socket(socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

std::string port_of(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  const in_port_t port = address.ss_family == AF_INET6
                             ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                             : reinterpret_cast<const sockaddr_in&>(address).sin_port;
  return std::to_string(ntohs(port));
}

// On every interface, IPv6 and IPv4, where the machine has both.
Socket listen_anywhere() {
  Socket fd = new_socket(AF_INET6);
  sockaddr_in6 v6{};
  v6.sin6_family = AF_INET6;
  const int no = 0;
  bool bound = fd.get() >= 0 &&
               setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no) == 0 &&
               bind(fd.get(), reinterpret_cast<sockaddr*>(&v6), sizeof v6) == 0;
  if (!bound) {
    fd = new_socket(AF_INET);
    sockaddr_in v4{};
    v4.sin_family = AF_INET;
    bound = fd.get() >= 0 && bind(fd.get(), reinterpret_cast<sockaddr*>(&v4), sizeof v4) == 0;
  }
  if (!bound || listen(fd.get(), 128) != 0) {
    throw std::runtime_error("cannot listen for other ranks: " + error_name());
  }
  return fd;
}

Contact own_contact(int listener) {
  Contact contact{host_name(), getpid(), port_of(listener), machine_name(), {}, own_addresses()};
  if (getrandom(contact.nonce.data(), sizeof contact.nonce, 0) != sizeof contact.nonce) {
    throw std::runtime_error("cannot read random bytes: " + error_name());
  }
  return contact;
}

// Takes one connection from a rank that knows our nonce, if one comes before the deadline.
std::optional<std::pair<int, Socket>> accept_one(int listener, const std::vector<Contact>& contacts,
                                                 int own, Clock::time_point deadline) {
  if (!wait_until_ready(listener, POLLIN, deadline)) return std::nullopt;
  Socket fd(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  Hello hello{};
  if (fd.get() < 0 ||
      !receive_all(fd.get(), &hello, sizeof hello,
                   std::min(deadline, Clock::now() + kAnswerTime)) ||
      hello.nonce != contacts[own].nonce || hello.rank < 0 ||
      hello.rank >= static_cast<int>(contacts.size())) {
    return std::nullopt;
  }
  const Hello answer{contacts[hello.rank].nonce, own};
  if (!send_all(fd.get(), &answer, sizeof answer)) return std::nullopt;
  return std::pair(hello.rank, std::move(fd));
}

Socket connect_to(const std::string& address, const std::string& port, Clock::time_point deadline) {
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(address.c_str(), port.c_str(), &hints, &found) != 0) return Socket();
  Socket fd = new_socket(found->ai_family);
  const int started = connect(fd.get(), found->ai_addr, found->ai_addrlen);
  freeaddrinfo(found);
  if (started == 0) return fd;
  if (errno != EINPROGRESS) return Socket();
  int error = ETIMEDOUT;
  socklen_t size = sizeof error;
  if (wait_until_ready(fd.get(), POLLOUT, deadline)) {
    getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  }
  errno = error;
  return error == 0 ? std::move(fd) : Socket();
}

// Tries the addresses of a rank in turn. Several hosts may have one address, of a bridge say: only
// the right rank knows our nonce.
Socket connect_to_rank(int rank, const std::vector<Contact>& contacts, int own) {
  const Contact& there = contacts[rank];
  std::vector<std::string> addresses = there.addresses;
  if (there.machine == contacts[own].machine) {
    addresses.insert(addresses.begin(), {"127.0.0.1", "::1"});
  }
  std::string tried;
  for (const std::string& address : addresses) {
    const auto deadline = Clock::now() + kAnswerTime;
    Socket fd = connect_to(address, there.port, deadline);
    const std::string reason = fd.get() < 0 ? error_name() : "another program answers";
    const Hello hello{there.nonce, own};
    Hello answer{};
    if (fd.get() >= 0 && send_all(fd.get(), &hello, sizeof hello) &&
        receive_all(fd.get(), &answer, sizeof answer, deadline) && answer.rank == rank &&
        answer.nonce == contacts[own].nonce) {
      return fd;
    }
    tried += (tried.empty() ? "" : ", ") + address + " port " + there.port + " (" + reason + ")";
  }
  throw std::runtime_error("rank " + std::to_string(own) + " on " + contacts[own].host +
                           " cannot reach rank " + std::to_string(rank) + " on " + there.host +
                           " over TCP: " + (tried.empty() ? "it has no address" : tried));
}

// One side of each pair connects, the other accepts; both at the same time.
std::vector<Socket> connect_pairs(int listener, const std::vector<Contact>& contacts, int own) {
  const int ranks = static_cast<int>(contacts.size());
  std::vector<Socket> sockets(contacts.size());
  int awaited = 0;
  for (int distance = 1; distance < ranks; distance *= 2) awaited += (own & distance) == 0;
  std::thread acceptor([&, awaited]() mutable {
    for (const auto deadline = Clock::now() + kConnectTime;
         awaited > 0 && Clock::now() < deadline;) {
      if (auto pair = accept_one(listener, contacts, own, deadline)) {
        sockets[pair->first] = std::move(pair->second);
        --awaited;
      }
    }
  });
  std::exception_ptr error;
  try {
    for (int distance = 1; distance < ranks; distance *= 2) {
      const int rank = own ^ distance;
      if (rank < own) sockets[rank] = connect_to_rank(rank, contacts, own);
    }
  } catch (...) {
    error = std::current_exception();
  }
  acceptor.join();
  if (error) std::rethrow_exception(error);
  return sockets;
}

}  // namespace

std::string host_name() {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  return name.data();
}

int rank_on_machine(Communicator& ranks) {
  const std::vector<std::string> machines = ranks.gather(machine_name());
  const auto own = machines.begin() + ranks.rank();
  return static_cast<int>(std::count(machines.begin(), own, *own));
}

std::vector<Neighbour> connect_neighbours(Communicator& ranks) {
  const Socket listener = listen_anywhere();
  std::vector<Contact> contacts;
  for (const std::string& text : ranks.gather(nlohmann::json(own_contact(listener.get())).dump())) {
    contacts.push_back(nlohmann::json::parse(text).get<Contact>());
  }
  std::vector<Socket> sockets;
  std::string problem;
  try {
    sockets = connect_pairs(listener.get(), contacts, ranks.rank());
  } catch (const std::runtime_error& error) {
    problem = error.what();
  }
  for (const std::string& text : ranks.gather(problem)) {
    if (!text.empty()) throw std::runtime_error(text);
  }
  std::vector<Neighbour> neighbours;
  for (int distance = 1; distance < ranks.size(); distance *= 2) {
    const int rank = ranks.rank() ^ distance;
    const int yes = 1;
    setsockopt(sockets[rank].get(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    neighbours.push_back(
        {rank, contacts[rank].host, contacts[rank].process, sockets[rank].release()});
  }
  return neighbours;
}

}  // namespace steelyard::comm
