#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <limits>
#include <mutex>
#include <span>
#include <string>
#include <utility>

#include "millstream/core/error.h"

namespace millstream {

/// Rows that are made in parts by several workers, and the one who waits for them.
class Job {
 public:
  explicit Job(std::int64_t rows) : left_(rows) {}

  /// A part is done with, well or not.
  void finish(std::int64_t rows) {
    const std::lock_guard lock(mutex_);
    left_ -= rows;
    if (left_ <= 0) done_.notify_all();
  }
  /// The same for a part that failed at `row`; of several failures the first row
  /// counts.
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

  /// The same with an error that nobody else has a part of.
  template <typename E>
  void fail_with(std::int64_t rows, std::int64_t row, E error) {
    std::exception_ptr thrown = std::make_exception_ptr(std::move(error));
    fail(rows, row, std::move(thrown));
  }

  /// Cancels the parts that have not begun. Returns whether this is the first call.
  bool cancel() noexcept { return !cancelled_.exchange(true); }
  bool cancelled() const noexcept { return cancelled_.load(); }
  /// Lets running parts stop early too. Returns whether this is the first call.
  bool stop() noexcept {
    cancel();
    return !stopped_.exchange(true);
  }
  bool stopped() const noexcept { return stopped_.load(); }

  /// Whether it is over within `patience`.
  bool wait(std::chrono::milliseconds patience) {
    std::unique_lock lock(mutex_);
    return done_.wait_for(lock, patience, [this] { return left_ <= 0; });
  }
  /// Throws what went wrong, once: it belongs to the one who waited from then on.
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

/// How many rows a worker is at, by what it noted: row k, or -n for the first n of its
/// part at once.
inline std::int64_t rows_at_once(std::int64_t noted, std::int64_t rows) {
  return std::max<std::int64_t>(-std::max(noted, -rows), 1);
}

/// The same in words.
inline std::string samples_at(std::int64_t noted,
                              std::span<const std::int64_t> indices) {
  const auto rows = static_cast<std::int64_t>(indices.size());
  const std::int64_t count = rows_at_once(noted, rows);
  if (count == 1) {
    const auto row = std::clamp<std::int64_t>(noted, 0, rows - 1);
    return text("sample ", indices[static_cast<std::size_t>(row)]);
  }
  constexpr std::int64_t kListed = 8;
  std::string words = "one of samples [";
  for (const std::int64_t index :
       indices.first(static_cast<std::size_t>(std::min(count, kListed)))) {
    if (words.back() != '[') words += ", ";
    words += std::to_string(index);
  }
  return words + (count > kListed ? ", ...]" : "]");
}

/// How many rows to hand out at once: so many that handing out costs little, so few
/// that all workers have some. Learns what a row costs.
class Pace {
 public:
  /// `at_once` batches are being made, this one among them.
  std::int64_t grain(std::int64_t rows, int workers, int at_once = 1) const noexcept {
    const std::int64_t row_ns = row_ns_.load(std::memory_order_relaxed);
    const std::int64_t share =
        std::max<std::int64_t>((rows + workers - 1) / workers, 1);
    if (row_ns == 0) return share;
    // Of what is so cheap each worker makes whole batches, one after the other.
    if (rows * row_ns < kWholeNs) return rows;
    // And where there are enough for each to have one, and one to go on with.
    if (rows * row_ns < kPartNs && at_once > workers) return rows;
    // As many parts for each worker, or some would have nothing to do at the end.
    const std::int64_t parts =
        std::max<std::int64_t>((share * row_ns + kPartNs / 2) / kPartNs, 1);
    return (share + parts - 1) / parts;
  }
  /// Whether so many rows are made in less time than anybody would mind to wait.
  bool is_short(std::int64_t rows) const noexcept {
    const std::int64_t row_ns = row_ns_.load(std::memory_order_relaxed);
    return row_ns > 0 && rows * row_ns < kShortNs;
  }
  void note(std::int64_t rows, std::chrono::nanoseconds taken) noexcept {
    const std::int64_t before = row_ns_.load(std::memory_order_relaxed);
    const std::int64_t now = taken.count() / std::max<std::int64_t>(rows, 1);
    row_ns_.store(before == 0 ? now : before + (now - before) / 4,
                  std::memory_order_relaxed);
  }

 private:
  static constexpr std::int64_t kPartNs = 32'000'000;
  static constexpr std::int64_t kShortNs = 8'000'000;
  static constexpr std::int64_t kWholeNs = 1'000'000;
  std::atomic<std::int64_t> row_ns_{0};
};

/// How often those who wait look up, to see whether they still should.
inline constexpr std::chrono::milliseconds kGlance{50};

}  // namespace millstream
