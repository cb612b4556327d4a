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

/// Gives all local shards of a batch the same answer: one batch or one error. The first
/// shard that asks computes the answer. If one shard failed alone, the others would
/// wait for it forever in a collective operation. Thread-safe.
class Answers {
 public:
  /// A batch; null if each shard makes its own rows; or nothing if the answer would
  /// have required waiting.
  using Found = std::optional<std::shared_ptr<const Batch>>;

  /// An answer is removed when `devices` callers have received it.
  explicit Answers(int devices) : devices_(devices) {}

  /// Returns or throws what `find` returned or threw for the first caller. If another
  /// caller is still running `find`, waits for it, or returns nothing if `wait` is
  /// false.
  Found get(const Position& position, bool wait, const std::function<Found()>& find);

  /// Waits at most `timeout` until every shard has received the stored errors.
  /// Otherwise a program that starts now would receive the errors of the previous
  /// program. First removes errors that are older than `age`, because some shards will
  /// never ask for them.
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
