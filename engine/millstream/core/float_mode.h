#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace millstream {

/// While it lives, this thread rounds to nearest and keeps subnormal numbers, whatever
/// the caller chose: XLA's threads flush them to zero, and bytes must not depend on who
/// asks.
class ExactFloats {
 public:
  ExactFloats() noexcept : before_(read()) { write(kExact); }
  ~ExactFloats() { write(before_); }
  ExactFloats(const ExactFloats&) = delete;
  ExactFloats& operator=(const ExactFloats&) = delete;

 private:
#if defined(__x86_64__)
  using Mode = std::uint32_t;
  static constexpr Mode kExact = 0x1F80;  // all exceptions masked, nothing flushed
  static Mode read() noexcept { return _mm_getcsr(); }
  static void write(Mode mode) noexcept { _mm_setcsr(mode); }
#elif defined(__aarch64__)
  using Mode = std::uint64_t;
  static constexpr Mode kExact = 0;
  static Mode read() noexcept {
    Mode mode;
    asm volatile("mrs %0, fpcr" : "=r"(mode));
    return mode;
  }
  static void write(Mode mode) noexcept { asm volatile("msr fpcr, %0" : : "r"(mode)); }
#else
  using Mode = int;
  static constexpr Mode kExact = 0;
  static Mode read() noexcept { return 0; }
  static void write(Mode) noexcept {}
#endif

  Mode before_;
};

}  // namespace millstream
