#pragma once

#include <cfenv>

namespace millstream {

/// While this object exists, its thread rounds to nearest and keeps subnormal numbers.
/// XLA's threads flush subnormal numbers to zero, but a batch must not depend on the
/// thread that makes it.
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
