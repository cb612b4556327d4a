#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <limits>
#include <mutex>
#include <utility>

namespace millstream {

/// How often waiting threads check for cancellation and timeouts.
inline constexpr std::chrono::milliseconds kPollInterval{50};

/// The state that the chunks of one request share: the number of rows left, the first
/// error, and the waiting caller. Thread-safe.
class RequestProgress {
 public:
  explicit RequestProgress(std::int64_t rows) : left_(rows) {}

  /// Reports that a chunk of `rows` rows is done or has failed.
  void finish(std::int64_t rows) {
    const std::lock_guard lock(mutex_);
    left_ -= rows;
    if (left_ <= 0) done_.notify_all();
  }
  /// Reports that a chunk of `rows` rows failed at `row`. The error of the lowest row
  /// is kept.
  void fail(std::int64_t rows, std::int64_t row, std::exception_ptr error) {
    {
      const std::lock_guard lock(mutex_);
      if (row < error_row_) {
        error_row_ = row;
        error_ = std::move(error);
      }
    }
    finish(rows);
  }

  /// Like `fail`, with a copy of the error that no other thread shares.
  template <typename E>
  void fail_with(std::int64_t rows, std::int64_t row, E error) {
    std::exception_ptr thrown = std::make_exception_ptr(std::move(error));
    fail(rows, row, std::move(thrown));
  }

  /// Cancels the chunks that have not started. Returns true on the first call.
  bool cancel() noexcept { return !cancelled_.exchange(true); }
  bool cancelled() const noexcept { return cancelled_.load(); }
  /// Cancels all chunks, including those that are running. Returns true on the first
  /// call.
  bool stop() noexcept {
    cancel();
    return !stopped_.exchange(true);
  }
  bool stopped() const noexcept { return stopped_.load(); }

  /// Waits at most `timeout`. Returns whether all rows are done.
  bool wait(std::chrono::milliseconds timeout) {
    std::unique_lock lock(mutex_);
    return done_.wait_for(lock, timeout, [this] { return left_ <= 0; });
  }
  /// Throws the error, if there is one. Afterwards only the caller owns it.
  void rethrow() {
    std::exception_ptr error;
    {
      const std::lock_guard lock(mutex_);
      error = std::exchange(error_, nullptr);
    }
    if (error) std::rethrow_exception(std::move(error));
  }

 private:
  std::mutex mutex_;
  std::condition_variable done_;
  std::int64_t left_;
  std::int64_t error_row_ = std::numeric_limits<std::int64_t>::max();
  std::exception_ptr error_;
  std::atomic<bool> cancelled_{false};
  std::atomic<bool> stopped_{false};
};

}  // namespace millstream
