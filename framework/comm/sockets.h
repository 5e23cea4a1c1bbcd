// TCP sockets of the connections between ranks. None of them blocks; what waits has a deadline.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <utility>

namespace steelyard::comm {

using SocketClock = std::chrono::steady_clock;

class Socket {
 public:
  explicit Socket(int fd = -1) : fd_(fd) {}
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Socket();

  explicit operator bool() const { return fd_ >= 0; }
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

// Both listen at a port that the system chooses, and throw std::runtime_error where they cannot.
// For processes that share this one's loopback interface: 127.0.0.1, or ::1 where there is no IPv4.
Socket listen_on_loopback();
// On every interface, IPv6 and IPv4, where the machine has both.
Socket listen_on_all_interfaces();

// The port at which a socket of this process listens.
std::string port_of(const Socket& listener);
// The other end of a connection, for messages: "10.0.0.7 port 4711".
std::string peer_of(const Socket& connection);

// Connects to a numeric address. Without a connection before the deadline the socket is empty, and
// errno says why.
Socket connect_to(const std::string& address, const std::string& port,
                  SocketClock::time_point deadline);

// Whether poll() reports one of `events`, or an end, before the deadline.
bool wait_until_ready(const Socket& socket, short events, SocketClock::time_point deadline);
// The time until the deadline as poll() takes it, at least 0.
int milliseconds_until(SocketClock::time_point deadline);

// Sends what is far below the size of a socket's buffer; false where it does not go at once.
bool send_all(const Socket& socket, const void* data, std::size_t bytes);
// False where the other end closes the connection or is silent until the deadline.
bool receive_all(const Socket& socket, void* data, std::size_t bytes,
                 SocketClock::time_point deadline);

}  // namespace steelyard::comm
