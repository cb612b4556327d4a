#include "millstream/parallel/thread_pool.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <string>
#include <system_error>
#include <utility>

#include "millstream/parallel/process.h"

namespace millstream {

ThreadPool::ThreadPool(int threads)
    : generation_(fork_generation()),
      wake_(std::make_unique<std::condition_variable_any>()) {
  grow(threads);
}

ThreadPool::~ThreadPool() {
  if (generation_ != fork_generation()) {
    for (std::jthread& thread : threads_)
      thread.detach();  // they exist only in the parent
    // Destroying the condition variable would wait for threads that do not exist here.
    static_cast<void>(wake_.release());
    return;
  }
  for (std::jthread& thread : threads_) thread.request_stop();
}

int ThreadPool::threads() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int>(threads_.size());
}

int ThreadPool::grow(int threads) {
  if (generation_ != fork_generation()) return 0;
  const std::lock_guard lock(mutex_);
  try {
    while (static_cast<int>(threads_.size()) < threads) {
      threads_.emplace_back([this](const std::stop_token& stop) { work(stop); });
      const std::string name = "millstream-" + std::to_string(threads_.size());
      pthread_setname_np(threads_.back().native_handle(), name.substr(0, 15).c_str());
    }
  } catch (const std::system_error&) {
    // The existing threads do the work.
  }
  return static_cast<int>(threads_.size());
}

void ThreadPool::submit(std::function<void()> task) {
  if (generation_ != fork_generation()) return;
  {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  wake_->notify_one();
}

void ThreadPool::work(const std::stop_token& stop) {
  while (true) {
    std::function<void()> task;
    {
      std::unique_lock lock(mutex_);
      if (!wake_->wait(lock, stop, [this] { return !tasks_.empty(); })) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    task();
  }
}

void ThreadPool::for_ranges(
    std::int64_t count, std::int64_t most, int helpers,
    const std::function<void(std::int64_t, std::int64_t)>& body) {
  const std::int64_t ranges = (count + most - 1) / most;
  helpers = static_cast<int>(std::min<std::int64_t>(helpers, ranges - 1));
  if (helpers <= 0 || generation_ != fork_generation()) {
    if (count > 0) body(0, count);
    return;
  }

  // Shared, because a helper may start only after the caller has returned. It then
  // finds no range left and does not touch `body`.
  struct Progress {
    std::atomic<std::int64_t> next{0};
    std::mutex mutex;
    std::condition_variable done;
    std::int64_t finished = 0;
    std::exception_ptr error;
  };
  const auto progress = std::make_shared<Progress>();
  const auto run = [progress, ranges, most, count, &body] {
    while (true) {
      const std::int64_t i = progress->next.fetch_add(1);
      if (i >= ranges) return;
      std::exception_ptr error;
      try {
        body(i * most, std::min(count, (i + 1) * most));
      } catch (...) {
        error = std::current_exception();
      }
      const std::lock_guard lock(progress->mutex);
      if (error && !progress->error) progress->error = error;
      if (++progress->finished == ranges) progress->done.notify_all();
    }
  };
  for (int i = 0; i < helpers; ++i) submit(run);
  run();
  std::unique_lock lock(progress->mutex);
  progress->done.wait(lock, [&] { return progress->finished == ranges; });
  if (progress->error) std::rethrow_exception(progress->error);
}

ThreadPool& shared_pool() {
  static std::atomic<ThreadPool*> pool{nullptr};
  static std::atomic<std::uint64_t> made_in{~std::uint64_t{0}};
  const std::uint64_t now = fork_generation();
  if (ThreadPool* ready = pool.load(); ready != nullptr && made_in.load() == now) {
    return *ready;
  }
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  if (pool.load() == nullptr || made_in.load() != now) {
    pool.store(new ThreadPool(cpu_budget()));
    made_in.store(now);
  }
  return *pool.load();
}

}  // namespace millstream
