#include "millstream/ffi/delivery.h"

#include <pthread.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "millstream/parallel/process.h"

namespace millstream {
namespace {

struct DeliveryThreads {
  std::uint64_t generation = fork_generation();
  std::mutex mutex;
  std::condition_variable wake;
  std::deque<std::function<void()>> tasks;
  std::size_t idle = 0;
};

/// Never destroyed, because a program may wait for a batch while the process exits. A
/// forked process gets a new instance, because it does not inherit the threads.
DeliveryThreads& delivery_threads() {
  static std::mutex mutex;
  static DeliveryThreads* current = nullptr;
  const std::lock_guard lock(mutex);
  if (current == nullptr || current->generation != fork_generation()) {
    current = new DeliveryThreads;
  }
  return *current;
}

void run_thread(DeliveryThreads& shared) {
  pthread_setname_np(pthread_self(), "millstream-out");
  std::unique_lock lock(shared.mutex);
  while (true) {
    shared.wake.wait(lock, [&] { return !shared.tasks.empty(); });
    const std::function<void()> task = std::move(shared.tasks.front());
    shared.tasks.pop_front();
    --shared.idle;
    lock.unlock();
    task();
    lock.lock();
    ++shared.idle;
  }
}

/// Returns false if the system cannot start a thread. The caller holds the mutex.
bool start_thread(DeliveryThreads& shared) {
  try {
    std::thread(run_thread, std::ref(shared)).detach();
  } catch (const std::system_error&) {
    return false;
  }
  ++shared.idle;
  return true;
}

}  // namespace

void deliver(std::function<void()> task) {
  DeliveryThreads& shared = delivery_threads();
  {
    const std::lock_guard lock(shared.mutex);
    if (shared.tasks.size() < shared.idle || start_thread(shared)) {
      shared.tasks.push_back(std::move(task));
      shared.wake.notify_one();
      return;
    }
  }
  task();
}

}  // namespace millstream
