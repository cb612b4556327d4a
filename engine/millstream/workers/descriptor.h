#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <utility>

namespace millstream {

/// Owns a file descriptor and closes it on destruction.
class Descriptor {
 public:
  /// The lowest number that `lift` chooses. Lower numbers are reserved for descriptors
  /// that worker processes inherit.
  static constexpr int kLifted = 10;

  Descriptor() = default;
  explicit Descriptor(int number) noexcept : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~Descriptor() {
    if (number_ >= 0) close(number_);
  }

  int number() const noexcept { return number_; }
  explicit operator bool() const noexcept { return number_ >= 0; }

  /// Changes the number to one that does not clash with those that a worker process
  /// inherits. Returns false and sets errno on failure.
  bool lift() noexcept {
    Descriptor higher(fcntl(number_, F_DUPFD_CLOEXEC, kLifted));
    if (!higher) return false;
    *this = std::move(higher);
    return true;
  }

 private:
  int number_ = -1;
};

}  // namespace millstream
