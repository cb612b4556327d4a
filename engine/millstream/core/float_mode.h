#pragma once

#include <cfenv>

namespace millstream {

/// While it lives, this thread rounds to nearest and keeps subnormal numbers, whatever
/// the caller chose: XLA's threads flush them to zero, and bytes must not depend on who
/// asks.
class ExactFloats {
 public:
  ExactFloats() noexcept {
    std::fegetenv(&before_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~ExactFloats() { std::fesetenv(&before_); }
  ExactFloats(const ExactFloats&) = delete;
  ExactFloats& operator=(const ExactFloats&) = delete;

 private:
  std::fenv_t before_;
};

}  // namespace millstream
