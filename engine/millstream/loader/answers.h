#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "millstream/loader/batch.h"
#include "millstream/loader/prefetcher.h"

namespace millstream {

/// One answer for all shards of a process that ask for a batch: whoever asks first
/// finds it, and all get the same, a batch or an error. One shard that failed while the
/// others went on would leave them waiting in a collective.
class Answers {
 public:
  /// A batch, null where shards make their rows themselves, or nothing where it cannot
  /// be had without waiting.
  using Found = std::optional<std::shared_ptr<const Batch>>;

  /// An answer is forgotten when so many devices have had it.
  explicit Answers(int devices) : devices_(devices) {}

  /// What `find` returned or threw for the first shard to ask. Where another shard is
  /// at it, waits for it, or without `wait` returns nothing.
  Found get(const Position& position, bool wait, const std::function<Found()>& find);

  /// Waits, not longer than `timeout`, until every shard has come for the errors that
  /// there are: a program that is started meanwhile would take those of the one before.
  /// Forgets those of at least that age, for which some never will.
  void forget_errors(std::chrono::seconds age, std::chrono::milliseconds timeout);

 private:
  struct Answer {
    std::uint64_t number = 0;
    std::chrono::steady_clock::time_point found_at;
    bool done = false;
    bool withdrawn = false;
    int taken = 0;
    Found found;
    std::exception_ptr error;
  };

  void evict();

  const int devices_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::unordered_map<Position, std::shared_ptr<Answer>, PositionHash> answers_;
  std::uint64_t count_ = 0;
};

}  // namespace millstream
