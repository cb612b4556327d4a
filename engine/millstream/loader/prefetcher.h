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
#include "millstream/loader/plan.h"
#include "millstream/parallel/thread_pool.h"

namespace millstream {

struct PositionHash {
  std::size_t operator()(const Position& position) const noexcept;
};

/// A cache in front of `Plan::batch`: batches made on the shared pool ahead of those
/// who ask, kept by (seed, epoch, step). Serves several streams, forwards and
/// backwards; a batch that nobody has begun is made by the one who asks for it, unless
/// it waits for a worker pool or a disk, or is expensive. The cache never changes what
/// is in a batch.
class Prefetcher {
 public:
  /// Makes `ahead` batches per stream in advance, on at most `threads` threads of the
  /// shared pool; with a worker pool, on threads of its own that only wait.
  Prefetcher(std::shared_ptr<const Plan> plan, std::shared_ptr<Slots> slots,
             int threads, int ahead);

  /// Stops what has not begun and waits for what has.
  ~Prefetcher();
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  /// The batch at `position`; null if another thread is at it and not done within
  /// `timeout`. Rethrows what making it threw. With `keep` it stays for others.
  std::shared_ptr<const Batch> get(const Position& position, bool keep,
                                   std::chrono::milliseconds timeout);

  /// The batch at `position` if it is made already, else null; never waits for it.
  std::shared_ptr<const Batch> ready(const Position& position);

  /// No iterator continues at `position`: batches made ahead from there are dropped as
  /// soon as a batch elsewhere is asked for.
  void abandon(const Position& position);

  /// Records how long a batch took to make, here or elsewhere.
  void record_time(std::chrono::nanoseconds taken) noexcept;

  /// Whether batches have of late been made so fast that handing one over from another
  /// thread would take longer: files that the system holds in memory. It may change
  /// with every batch, and never changes what is in one.
  bool is_quick() const noexcept;

 private:
  enum class Stage : std::uint8_t { kQueued, kMaking, kDone };
  struct Entry {
    Position position;
    Stage stage = Stage::kQueued;
    std::uint64_t used = 0;                  // when, by `clock_`
    bool asked = false;                      // by someone, and not only made ahead
    bool orphaned = false;                   // made ahead for a stream that has ended
    bool unhinted = false;                   // the source has had no hint of it
    std::optional<Position> hint_next = {};  // the batch to hint the source about
    std::shared_ptr<const Batch> batch = {};
    std::exception_ptr error = {};
    std::atomic<bool> dropped = false;  // nobody will ask for it
  };
  /// Who asks for one batch after the other.
  struct Stream {
    Position last;
    std::uint64_t used = 0;  // when, by `asked_`
    bool counts = false;     // else it may be a jump of another with its seed
    bool abandoned = false;  // unless somebody goes on with it
    int unhinted = 0;        // batches after `last` that the source has had no hint of
  };

  using Lock = std::unique_lock<std::mutex>;
  using Clock = std::chrono::steady_clock;

  ThreadPool& pool();
  void make(Entry& entry, const std::function<void()>* on_queued = nullptr) noexcept;
  void hint(const std::optional<Position>& position) noexcept;
  void run();
  bool
  start() noexcept;  // another thread that takes from the queue; false if none does
  bool start_with(const std::shared_ptr<Entry>& entry);
  void look_ahead(const Position& position);
  /// Whether a batch at `position` is the stream's last one, or follows it.
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

  std::mutex turns_;  // batches reach the worker pool in order; taken before `mutex_`
  std::mutex mutex_;
  std::condition_variable done_;
  std::unordered_map<Position, std::shared_ptr<Entry>, PositionHash> entries_;
  std::deque<std::shared_ptr<Entry>> queue_;
  std::vector<Stream> streams_;
  std::uint64_t clock_ = 0;
  std::uint64_t asked_ = 0;  // batches, by all streams
  int running_ = 0;
  std::atomic<bool> stopping_ = false;
  std::optional<ThreadPool> waiting_;  // last: its threads use the members above
};

}  // namespace millstream
