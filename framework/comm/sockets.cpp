#include "steelyard/framework/comm/sockets.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <stdexcept>

namespace steelyard::comm {
namespace {

Socket new_socket(int family) {
  return Socket(socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

// An empty socket where it cannot be bound, as on a machine without this family.
Socket bound_v4(in_addr_t address) {
  Socket fd = new_socket(AF_INET);
  sockaddr_in v4{};
  v4.sin_family = AF_INET;
  v4.sin_addr.s_addr = htonl(address);
  if (fd && bind(fd.get(), reinterpret_cast<sockaddr*>(&v4), sizeof v4) != 0) return Socket();
  return fd;
}

// IPv4's addresses too, where the address is every one.
Socket bound_v6(const in6_addr& address) {
  Socket fd = new_socket(AF_INET6);
  sockaddr_in6 v6{};
  v6.sin6_family = AF_INET6;
  v6.sin6_addr = address;
  const int no = 0;
  if (fd && (setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no) != 0 ||
             bind(fd.get(), reinterpret_cast<sockaddr*>(&v6), sizeof v6) != 0)) {
    return Socket();
  }
  return fd;
}

Socket listening(Socket bound) {
  if (!bound || listen(bound.get(), 128) != 0) {
    throw std::runtime_error(std::string("cannot listen for other ranks: ") + strerror(errno));
  }
  return bound;
}

struct Place {
  std::string address;
  std::uint16_t port;
};

Place place_of(const sockaddr_storage& from) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  in_port_t port = 0;
  if (from.ss_family == AF_INET6) {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(from);
    inet_ntop(AF_INET6, &v6.sin6_addr, text.data(), text.size());
    port = v6.sin6_port;
  } else if (from.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(from);
    inet_ntop(AF_INET, &v4.sin_addr, text.data(), text.size());
    port = v4.sin_port;
  }
  return {text.data(), ntohs(port)};
}

}  // namespace

Socket::~Socket() {
  if (fd_ >= 0) close(fd_);
}

Socket listen_on_loopback() {
  Socket v4 = bound_v4(INADDR_LOOPBACK);
  return listening(v4 ? std::move(v4) : bound_v6(in6addr_loopback));
}

Socket listen_on_all_interfaces() {
  Socket v6 = bound_v6(in6addr_any);
  return listening(v6 ? std::move(v6) : bound_v4(INADDR_ANY));
}

std::string port_of(const Socket& listener) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &size);
  return std::to_string(place_of(address).port);
}

std::string peer_of(const Socket& connection) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (getpeername(connection.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    return "an address that is gone";
  }
  const Place place = place_of(address);
  return place.address + " port " + std::to_string(place.port);
}

Socket connect_to(const std::string& address, const std::string& port,
                  SocketClock::time_point deadline) {
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(address.c_str(), port.c_str(), &hints, &found) != 0) {
    errno = EADDRNOTAVAIL;
    return Socket();
  }
  Socket fd = new_socket(found->ai_family);
  const int started = connect(fd.get(), found->ai_addr, found->ai_addrlen);
  int error = started == 0 ? 0 : errno;
  freeaddrinfo(found);
  if (error == EINPROGRESS) {
    error = ETIMEDOUT;
    socklen_t size = sizeof error;
    if (wait_until_ready(fd, POLLOUT, deadline)) {
      getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size);
    }
  }
  if (error == 0) return fd;
  fd = Socket();
  errno = error;
  return fd;
}

int milliseconds_until(SocketClock::time_point deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - SocketClock::now());
  return static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 60000));
}

bool wait_until_ready(const Socket& socket, short events, SocketClock::time_point deadline) {
  for (;;) {
    pollfd one{socket.get(), events, 0};
    const int ready = poll(&one, 1, milliseconds_until(deadline));
    if (ready > 0) return true;
    if (ready == 0 || errno != EINTR) return false;
  }
}

bool send_all(const Socket& socket, const void* data, std::size_t bytes) {
  return send(socket.get(), data, bytes, MSG_NOSIGNAL) == static_cast<ssize_t>(bytes);
}

bool receive_all(const Socket& socket, void* data, std::size_t bytes,
                 SocketClock::time_point deadline) {
  auto* at = static_cast<char*>(data);
  while (bytes > 0) {
    if (!wait_until_ready(socket, POLLIN, deadline)) return false;
    const ssize_t got = recv(socket.get(), at, bytes, 0);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) return false;
    if (got < 0) continue;
    at += got;
    bytes -= static_cast<std::size_t>(got);
  }
  return true;
}

}  // namespace steelyard::comm
