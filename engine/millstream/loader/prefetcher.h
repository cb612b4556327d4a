#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "millstream/loader/batch.h"
#include "millstream/loader/caller_trial.h"
#include "millstream/loader/plan.h"
#include "millstream/parallel/thread_pool.h"

namespace millstream {

struct PositionHash {
  std::size_t operator()(const Position& position) const noexcept;
};

/// A cache in front of `Plan::batch`. Threads of the shared pool make batches ahead of
/// the callers; the cache key is (seed, epoch, step). A stream is a caller that asks
/// for one batch after the other, forwards or backwards. There may be several. If no
/// thread has started a requested batch, the calling thread makes it, unless that is
/// expensive or waits for a disk or a worker pool. The cache never changes the content
/// of a batch. Thread-safe.
class Prefetcher {
 public:
  /// Makes `ahead` batches per stream in advance, on at most `threads` threads of the
  /// shared pool. If the plan uses a worker pool, threads of the prefetcher wait for it
  /// instead.
  Prefetcher(std::shared_ptr<const Plan> plan, std::shared_ptr<Slots> slots,
             int threads, int ahead);

  /// Drops queued batches and waits for those that are being made.
  ~Prefetcher();
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  /// Returns the batch at `position`, or null if another thread does not finish it
  /// within `timeout`. Rethrows the error of the batch. With `keep` the batch stays in
  /// the cache. With `may_call` the calling thread may call functions outside the
  /// engine, and then the timeout does not limit it.
  std::shared_ptr<const Batch> get(const Position& position, bool keep,
                                   std::chrono::milliseconds timeout,
                                   bool may_call = false);

  /// Returns the batch at `position` if it is done, or else null. Does not wait. Always
  /// returns null if, because of `may_call`, `get` decides who makes the batch.
  std::shared_ptr<const Batch> ready(const Position& position, bool may_call = false);

  /// Tells the prefetcher that no iterator continues at `position`. It drops the
  /// batches made ahead from there when a caller asks for a batch elsewhere.
  void abandon(const Position& position);

  /// Records how long it took to make a batch, here or elsewhere.
  void record_time(std::chrono::nanoseconds taken) noexcept;

  /// Whether recent batches were so fast that a handover between threads would take
  /// longer, for example because the files are in the page cache. The answer may change
  /// with every batch.
  bool is_quick() const noexcept;

 private:
  enum class Stage : std::uint8_t { kQueued, kMaking, kDone };
  struct Entry {
    Position position;
    Stage stage = Stage::kQueued;
    std::uint64_t used = 0;                  // the value of `clock_` at the last use
    bool asked = false;                      // a caller asked for it
    bool orphaned = false;                   // made ahead for a stream that has ended
    bool unhinted = false;                   // the source got no hint about it
    std::optional<Position> hint_next = {};  // the batch to hint the source about
    std::shared_ptr<const Batch> batch = {};
    std::exception_ptr error = {};
    std::atomic<bool> dropped = false;  // no caller will ask for it
  };
  /// The position and the recent use of one stream.
  struct Stream {
    Position last;
    std::uint64_t used = 0;  // the value of `asked_` at the last use
    bool counts = false;     // false: may be only a jump of another stream
    bool abandoned = false;  // until a caller continues it
    int unhinted = 0;        // next batches that the source got no hint about
  };

  using Lock = std::unique_lock<std::mutex>;
  using Clock = std::chrono::steady_clock;

  /// Whether the calling thread can call the functions of the plan, if it may.
  bool lends_functions() const noexcept {
    return plan_->traits().workers > 0 && !plan_->traits().needs_workers;
  }
  ThreadPool& pool();
  void make(Entry& entry, const std::function<void()>* on_queued = nullptr,
            bool may_call = false) noexcept;
  void hint(const std::optional<Position>& position) noexcept;
  void run();
  /// Starts another thread that takes batches from the queue. Returns false if no
  /// thread does.
  bool start() noexcept;
  bool start_with(const std::shared_ptr<Entry>& entry);
  /// Queues up to `ahead` batches after `position`.
  void look_ahead(const Position& position, int ahead);
  /// Whether `position` is the stream's last batch or the one after it.
  bool continues(const Stream& stream, const Position& position) const;
  void end(const Stream& stream);
  void evict();
  Position previous(const Position& position) const noexcept;

  const std::shared_ptr<const Plan> plan_;
  const std::shared_ptr<Slots> slots_;
  const int threads_;
  const int ahead_;
  const std::uint64_t generation_;
  std::atomic<std::int64_t> typical_ns_;

  std::mutex turns_;  // keeps batches in order; locked before `mutex_`
  std::mutex mutex_;
  std::condition_variable done_;
  std::unordered_map<Position, std::shared_ptr<Entry>, PositionHash> entries_;
  std::deque<std::shared_ptr<Entry>> queue_;
  std::vector<Stream> streams_;
  std::uint64_t clock_ = 0;
  std::uint64_t asked_ = 0;  // batches that all streams together asked for
  int running_ = 0;
  CallerTrial trial_;
  std::atomic<bool> stopping_ = false;
  std::optional<ThreadPool> waiting_;  // last: its threads use the members above
};

}  // namespace millstream
