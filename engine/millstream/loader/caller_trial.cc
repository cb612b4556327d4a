#include "millstream/loader/caller_trial.h"

#include <algorithm>

namespace millstream {

bool CallerTrial::caller_makes(Clock::time_point now) noexcept {
  if (window_ < kWindows && seen_ == unmeasured_ + kMeasured) end_window(now - start_);
  if (window_ == kWindows) {
    if (seen_++ < kKept) return caller_;
    window_ = seen_ = 0;
    best_.fill(Clock::duration::max());
  }
  if (seen_ == unmeasured_) start_ = now;
  ++seen_;
  return is_caller_window();
}

void CallerTrial::end_window(Clock::duration taken) noexcept {
  // The best window of each kind counts, because a loop may pause, e.g. to evaluate.
  Clock::duration& best = best_[is_caller_window() ? 1 : 0];
  best = std::min(best, taken);
  seen_ = 0;
  if (window_ == 0 && taken > kMeasured * kSlow) {
    keep(false);
  } else if (++window_ == kWindows) {
    keep(best_[1] < best_[0] * kMargin);
  }
}

void CallerTrial::keep(bool caller) noexcept {
  window_ = kWindows;
  caller_ = caller;
}

}  // namespace millstream
