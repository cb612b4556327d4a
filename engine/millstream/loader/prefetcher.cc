#include "millstream/loader/prefetcher.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "millstream/core/digest.h"
#include "millstream/core/error.h"
#include "millstream/parallel/process.h"
#include "millstream/parallel/thread_pool.h"

namespace millstream {
namespace {

/// How many streams are tracked. A new stream replaces the least recently used one.
constexpr std::size_t kStreams = 256;
/// A stream has ended if it asks for nothing while every stream asks for this many
/// batches.
constexpr std::uint64_t kForgotten = 2;

/// A batch that takes less than `kQuickNs` is not worth a second thread. One slow batch
/// counts as at most `kSlowNs`, or `kAsleepNs` if it did not wait for a disk: then the
/// kernel probably ran another thread on this core.
constexpr std::int64_t kQuickNs = 60'000;
constexpr std::int64_t kSlowNs = 4 * kQuickNs;
constexpr std::int64_t kAsleepNs = 3 * kQuickNs / 2;

/// Read-ahead hints are issued this many batches early, so that the disk can reorder
/// many reads.
constexpr int kHinted = 8;

/// At most this many threads wait for workers.
constexpr int kWaiting = 32;

/// How many threads wait for workers: two per worker, for its current and its next
/// batch, and one more.
int waiting_threads(const Plan& plan, int ahead) {
  return std::min({ahead + 1, 2 * plan.traits().workers + 1, kWaiting});
}

/// Whether another try may succeed.
bool is_transient(const std::exception_ptr& error) {
  if (!error) return false;
  try {
    std::rethrow_exception(error);
  } catch (const IoError&) {
    return true;
  } catch (...) {
    return false;
  }
}

}  // namespace

std::size_t PositionHash::operator()(const Position& position) const noexcept {
  return Digest()
      .add((std::uint64_t{position.seed.high} << 32) | position.seed.low)
      .add(std::uint64_t{position.epoch})
      .add(position.step)
      .value();
}

Prefetcher::Prefetcher(std::shared_ptr<const Plan> plan, std::shared_ptr<Slots> slots,
                       int threads, int ahead)
    : plan_(std::move(plan)),
      slots_(std::move(slots)),
      threads_(plan_->traits().workers > 0 ? waiting_threads(*plan_, ahead) : threads),
      ahead_(ahead),
      generation_(fork_generation()),
      typical_ns_(kSlowNs),
      trial_(ahead) {
  if (plan_->traits().workers > 0) waiting_.emplace(0);
}

Prefetcher::~Prefetcher() {
  if (generation_ != fork_generation()) return;
  Lock lock(mutex_);
  stopping_ = true;
  queue_.clear();
  done_.wait(lock, [this] { return running_ == 0; });
}

std::shared_ptr<const Batch> Prefetcher::get(const Position& position, bool keep,
                                             std::chrono::milliseconds timeout,
                                             bool may_call) {
  if (generation_ != fork_generation()) {  // a forked process has no threads
    Entry alone{.position = position, .stage = Stage::kMaking, .asked = true};
    make(alone);
    if (alone.error) std::rethrow_exception(alone.error);
    return alone.batch;
  }

  Lock lock(mutex_);
  auto& found = entries_[position];
  if (!found) {
    found = std::make_shared<Entry>();
    found->position = position;
    found->unhinted = true;
  }
  const std::shared_ptr<Entry> entry = found;
  entry->used = ++clock_;
  const bool asked_before = std::exchange(entry->asked, true);
  entry->orphaned = false;
  if (entry->stage == Stage::kDone && !asked_before && is_transient(entry->error)) {
    entry->stage = Stage::kQueued;
    entry->error = nullptr;
  }
  // A second request for a batch comes after a timeout: then another thread makes it.
  const bool calls = may_call && lends_functions() && !asked_before &&
                     trial_.caller_makes(Clock::now());
  look_ahead(position, calls ? 0 : ahead_);
  const bool waits =
      !calls && (waiting_ || !(plan_->traits().immediate() || is_quick()));
  bool begun = entry->stage != Stage::kQueued || (waits && asked_before);
  if (!begun) {
    std::erase(queue_, entry);  // the queue must not keep the batch alive
    // If the caller made the batch itself, it could not keep its timeout.
    if (waits) begun = start_with(entry);
  }
  if (!begun) {
    entry->stage = Stage::kMaking;
    lock.unlock();
    const auto start = Clock::now();
    hint(entry->hint_next);
    make(*entry, nullptr, calls);
    record_time(Clock::now() - start);
    lock.lock();
    entry->stage = Stage::kDone;
    done_.notify_all();
  } else if (!done_.wait_for(lock, timeout,
                             [&] { return entry->stage == Stage::kDone; })) {
    return nullptr;
  }
  if (entry->error || !keep) {
    const auto mine = entries_.find(position);
    if (mine != entries_.end() && mine->second == entry) entries_.erase(mine);
  }
  evict();
  if (entry->error) std::rethrow_exception(entry->error);
  return entry->batch;
}

std::shared_ptr<const Batch> Prefetcher::ready(const Position& position,
                                               bool may_call) {
  if (generation_ != fork_generation()) return nullptr;
  if (may_call && lends_functions()) return nullptr;
  const Lock lock(mutex_);
  const auto found = entries_.find(position);
  if (found == entries_.end() || found->second->stage != Stage::kDone ||
      found->second->error) {
    return nullptr;
  }
  found->second->used = ++clock_;
  found->second->asked = true;
  found->second->orphaned = false;
  const std::shared_ptr<const Batch> batch = found->second->batch;
  look_ahead(position, ahead_);
  evict();
  return batch;
}

void Prefetcher::abandon(const Position& position) {
  if (generation_ != fork_generation()) return;
  const Lock lock(mutex_);
  for (Stream& stream : streams_) {
    if (continues(stream, position)) stream.abandoned = true;
  }
}

bool Prefetcher::continues(const Stream& stream, const Position& position) const {
  return stream.last.seed == position.seed &&
         (stream.last == position || plan_->schedule().next(stream.last) == position);
}

void Prefetcher::record_time(std::chrono::nanoseconds taken) noexcept {
  const std::int64_t before = typical_ns_.load(std::memory_order_relaxed);
  std::int64_t now = taken.count();
  if (now > kQuickNs) now = std::min(now, waited_for_pages() ? kSlowNs : kAsleepNs);
  typical_ns_.store(before + (now - before) / 8, std::memory_order_relaxed);
}

bool Prefetcher::is_quick() const noexcept {
  return plan_->traits().workers == 0 &&
         typical_ns_.load(std::memory_order_relaxed) < kQuickNs;
}

ThreadPool& Prefetcher::pool() { return waiting_ ? *waiting_ : shared_pool(); }

void Prefetcher::make(Entry& entry, const std::function<void()>* on_queued,
                      bool may_call) noexcept {
  try {
    Memory own;  // a function that this thread calls may use another loader
    auto batch = slots_->take();
    if (entry.unhinted) hint(entry.position);
    const std::span<const RowRange> shards = slots_->layout().shards();
    for (std::size_t i = 0; i < shards.size(); ++i) {
      plan_->row_range(entry.position, shards[i].first, shards[i].count,
                       batch->columns(i), batch->mask(i),
                       may_call ? own : thread_memory(),
                       {&batch->host_values(), &batch->failures(), &stopping_,
                        &entry.dropped, on_queued, batch->block(), may_call});
    }
    entry.batch = std::move(batch);
  } catch (...) {
    entry.error = std::current_exception();
  }
}

/// A hint about a file in the page cache costs more than reading it, so quick plans get
/// none. Other hints may block until the disk accepts more requests.
void Prefetcher::hint(const std::optional<Position>& position) noexcept {
  try {
    if (position && !is_quick()) plan_->prepare(*position);
  } catch (...) {
    // A failed hint has no effect on the batch.
  }
}

bool Prefetcher::start() noexcept {
  try {
    const int others = waiting_ ? running_ : 0;
    if (pool().grow(waiting_ ? running_ + 1 : threads_) <= others) return running_ > 0;
    pool().submit([this] { run(); });
  } catch (...) {
    return running_ > 0;  // running threads take from the queue
  }
  ++running_;
  return true;
}

bool Prefetcher::start_with(const std::shared_ptr<Entry>& entry) {
  queue_.push_front(entry);
  if (start()) return true;
  queue_.pop_front();
  return false;
}

void Prefetcher::run() {
  // Batches enter the worker pool in order, so that none waits behind a later one whose
  // function never returns. The turn ends when the pool has queued this batch.
  Lock turn = plan_->queues() ? Lock(turns_) : Lock();
  const std::function<void()> end_turn = [&turn] {
    if (turn.owns_lock()) turn.unlock();
  };
  Lock lock(mutex_);
  if (!queue_.empty()) {
    const std::shared_ptr<Entry> entry = std::move(queue_.front());
    queue_.pop_front();
    entry->stage = Stage::kMaking;
    lock.unlock();
    const auto start = Clock::now();
    make(*entry, &end_turn);
    end_turn();
    lock.lock();
    entry->stage = Stage::kDone;
    done_.notify_all();
    lock.unlock();
    hint(entry->hint_next);
    record_time(Clock::now() - start);
    lock.lock();
    if (!queue_.empty()) {  // queued again, so that other loaders get their turn
      pool().submit([this] { run(); });
      return;
    }
  }
  --running_;
  done_.notify_all();
}

Position Prefetcher::previous(const Position& position) const noexcept {
  Position before = position;
  if (--before.step < 0) {
    before.step = plan_->schedule().steps() - 1;
    --before.epoch;
  }
  return before;
}

void Prefetcher::look_ahead(const Position& position, int ahead) {
  const std::uint64_t now = asked_ + 1;
  const std::uint64_t idle = kForgotten * (streams_.size() + 1);
  std::erase_if(streams_, [&](const Stream& stream) {
    const bool ended =
        now - stream.used > idle || (stream.abandoned && !continues(stream, position));
    if (ended) end(stream);
    return ended;
  });
  const auto find_stream = [&](auto&& is_at) {
    return std::ranges::find_if(streams_, [&](const Stream& stream) {
      return stream.last.seed == position.seed && is_at(stream.last);
    });
  };
  auto stream = find_stream(
      [&](const Position& last) { return plan_->schedule().next(last) == position; });
  bool backwards = false;
  if (stream == streams_.end()) {
    stream = find_stream([&](const Position& last) { return last == position; });
    if (stream != streams_.end()) {  // the caller asks again after a timeout
      stream->abandoned = false;
      return;
    }
    stream =
        find_stream([&](const Position& last) { return previous(last) == position; });
    backwards = stream != streams_.end();
  }
  if (stream != streams_.end()) {
    stream->counts = true;
  } else {
    const bool is_new =
        find_stream([](const Position&) { return true; }) == streams_.end();
    if (streams_.size() == kStreams) {
      streams_.erase(std::ranges::min_element(streams_, {}, &Stream::used));
    }
    stream =
        streams_.insert(streams_.end(), Stream{position, now, is_new, false, kHinted});
  }
  stream->last = position;
  stream->used = asked_ = now;
  stream->abandoned = false;

  const auto step = [&](const Position& from) {
    return backwards ? previous(from) : plan_->schedule().next(from);
  };
  Position at = position;
  for (int i = 0; i < ahead; ++i) {
    if (backwards && at.step == 0 && at.epoch == 0) break;
    at = step(at);
    auto& entry = entries_[at];
    if (entry) {
      entry->orphaned = false;
      continue;
    }
    entry = std::make_shared<Entry>();
    entry->position = at;
    entry->used = ++clock_;
    entry->unhinted = stream->unhinted > 0;
    stream->unhinted -= entry->unhinted ? 1 : 0;
    entry->hint_next = at;
    for (int k = 0; k < kHinted && entry->hint_next; ++k) {
      const bool first = entry->hint_next->step == 0 && entry->hint_next->epoch == 0;
      if (backwards && first) {
        entry->hint_next.reset();
      } else {
        entry->hint_next = step(*entry->hint_next);
      }
    }
    queue_.push_back(entry);
    if (running_ < threads_) start();
  }
}

/// Batches that were made ahead for an idle stream stay until `evict` needs the space,
/// because the stream may continue.
void Prefetcher::end(const Stream& stream) {
  Position at = stream.last;
  for (int i = 0; i < ahead_; ++i) {
    at = plan_->schedule().next(at);
    const auto found = entries_.find(at);
    if (found == entries_.end() || found->second->asked) continue;
    found->second->orphaned = true;
    if (!stream.abandoned) continue;
    found->second->dropped = true;
    std::erase(queue_, found->second);
    entries_.erase(found);
  }
}

void Prefetcher::evict() {
  // One more, for a stream that may have just begun.
  const auto streams = 1 + std::ranges::count_if(streams_, &Stream::counts);
  const std::size_t capacity =
      static_cast<std::size_t>(streams) * static_cast<std::size_t>(ahead_ + 1) + 1;
  // Batches of ended streams go first, then those that a caller has received, then
  // those made ahead.
  const auto rank = [](const Entry& entry) {
    return std::tuple(!entry.orphaned, !entry.asked, entry.used);
  };
  while (entries_.size() > capacity) {
    auto first = entries_.end();
    for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
      if (entry->second->stage != Stage::kDone) continue;
      if (first == entries_.end() || rank(*entry->second) < rank(*first->second)) {
        first = entry;
      }
    }
    if (first == entries_.end()) return;
    entries_.erase(first);
  }
}

}  // namespace millstream
