#include "millstream/loader/executor.h"

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "millstream/core/error.h"
#include "millstream/parallel/process.h"

namespace millstream {

bool PendingBatch::done() const {
  const std::lock_guard lock(mutex_);
  return done_;
}

std::shared_ptr<const Batch> PendingBatch::wait(
    std::chrono::milliseconds timeout) const {
  std::unique_lock lock(mutex_);
  if (!changed_.wait_for(lock, timeout, [this] { return done_; })) return nullptr;
  if (error_) std::rethrow_exception(error_);
  return batch_;
}

Executor::Executor(std::shared_ptr<WorkerPool> worker_pool, Schema schema,
                   std::int64_t rows, int concurrency)
    : worker_pool_(std::move(worker_pool)),
      slots_(std::make_shared<Slots>(
          Layout(std::move(schema), rows),
          static_cast<std::size_t>(std::max(concurrency, 0) + 4), worker_pool_.get())),
      concurrency_(concurrency),
      generation_(fork_generation()),
      waiting_(0) {
  if (rows < 1) throw ArgumentError(text("rows must be at least 1, not ", rows));
  if (concurrency < 1) {
    throw ArgumentError(text("concurrency must be at least 1, not ", concurrency));
  }
}

Executor::~Executor() { close(); }

void Executor::close() noexcept {
  closed_ = true;
  worker_pool_->close();
}

std::shared_ptr<const PendingBatch> Executor::submit(std::vector<std::int64_t> indices,
                                                     std::vector<std::uint64_t> seeds) {
  if (generation_ != fork_generation()) {
    throw ArgumentError(
        "a forked process cannot use the executor of its parent process: create the "
        "executor after the fork");
  }
  if (static_cast<std::int64_t>(indices.size()) > rows()) {
    throw ArgumentError(text("a batch has ", rows(), " rows, but ", indices.size(),
                             " indices were given"));
  }
  if (!seeds.empty() && seeds.size() != indices.size()) {
    throw ArgumentError(
        text(seeds.size(), " seeds do not fit ", indices.size(), " samples"));
  }
  auto pending = std::make_shared<PendingBatch>(slots_);
  if (waiting_.threads() < concurrency_ && waiting_.grow(waiting_.threads() + 1) == 0) {
    throw ThreadError(
        text("the first of ", concurrency_, " threads that wait for workers"),
        std::generic_category().message(EAGAIN));
  }
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back({pending, std::move(indices), std::move(seeds)});
  }
  waiting_.submit([this] { make_next(); });
  return pending;
}

void Executor::make_next() {
  std::unique_lock turn(turns_);
  Submitted submitted;
  {
    const std::lock_guard lock(mutex_);
    submitted = std::move(queue_.front());
    queue_.pop_front();
  }
  if (submitted.pending.use_count() == 1) return;  // the caller has dropped it
  std::shared_ptr<Batch> batch;
  std::exception_ptr error;
  try {
    batch = made(submitted, [&turn] {
      if (turn.owns_lock()) turn.unlock();
    });
  } catch (...) {
    error = std::current_exception();
  }
  PendingBatch& pending = *submitted.pending;
  const std::lock_guard lock(pending.mutex_);
  pending.done_ = true;
  pending.batch_ = std::move(batch);
  pending.error_ = std::move(error);
  pending.changed_.notify_all();
}

std::shared_ptr<Batch> Executor::made(const Submitted& submitted,
                                      const std::function<void()>& on_queued) {
  if (closed_) throw Closed("the executor was closed");
  auto batch = slots_->take();
  if (!submitted.indices.empty()) {
    worker_pool_->make({submitted.indices,
                        submitted.seeds,
                        {},
                        batch->columns(),
                        {&batch->host_values(), nullptr, &closed_, nullptr, &on_queued,
                         batch->block()},
                        0});
  }
  std::fill_n(batch->mask(), rows(), false);
  std::fill_n(batch->mask(), submitted.indices.size(), true);
  return batch;
}

}  // namespace millstream
