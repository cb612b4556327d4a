#pragma once

#include <array>
#include <chrono>

namespace millstream {

/// Decides who calls the functions of a plan with one worker thread: the loop that asks
/// for batches, or the worker, ahead of the loop. The worker can overlap with the loop,
/// but if the function holds a lock that the loop needs too, such as the GIL, both
/// wait for each other. So it tries both in turn, measures the time between the
/// requests of the loop, and keeps the faster one for a while. Not thread-safe.
class CallerTrial {
 public:
  using Clock = std::chrono::steady_clock;

  static constexpr int kMeasured = 32;  // batches of a window
  static constexpr int kWindows = 4;    // of a trial; the even ones use the worker
  static constexpr int kKept = 2048;    // batches between two trials
  /// The caller must take less than this fraction of the worker's time.
  static constexpr double kMargin = 0.98;
  /// If batches take longer than this, the worker makes them.
  static constexpr std::chrono::milliseconds kSlow{20};

  /// The worker makes up to `ahead` batches in advance. As many, and one more, are not
  /// measured after each change.
  explicit CallerTrial(int ahead) : unmeasured_(ahead + 1) {}

  /// Whether the caller makes the batch that it requests at `now`. Call it once for
  /// each batch.
  bool caller_makes(Clock::time_point now) noexcept;

 private:
  bool is_caller_window() const noexcept { return window_ % 2 == 1; }
  void end_window(Clock::duration taken) noexcept;
  void keep(bool caller) noexcept;

  const int unmeasured_;
  int window_ = 0;  // kWindows: the result is in use
  int seen_ = 0;    // batches of the window
  bool caller_ = false;
  Clock::time_point start_;
  std::array<Clock::duration, 2> best_ = {Clock::duration::max(),
                                          Clock::duration::max()};
};

}  // namespace millstream
