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

struct Deliverers {
  std::uint64_t generation = fork_generation();
  std::mutex mutex;
  std::condition_variable wake;
  std::deque<std::function<void()>> tasks;
  std::size_t idle = 0;
};

/// Never destroyed: a program may wait for a batch while the process exits. A forked
/// process, where the threads are not, gets others.
Deliverers& deliverers() {
  static std::mutex making;
  static Deliverers* current = nullptr;
  const std::lock_guard lock(making);
  if (current == nullptr || current->generation != fork_generation()) {
    current = new Deliverers;
  }
  return *current;
}

void work(Deliverers& shared) {
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

/// Whether a thread more could be had; the caller holds the mutex.
bool has_another(Deliverers& shared) {
  try {
    std::thread(work, std::ref(shared)).detach();
  } catch (const std::system_error&) {
    return false;
  }
  ++shared.idle;
  return true;
}

}  // namespace

void deliver(std::function<void()> task) {
  Deliverers& shared = deliverers();
  {
    const std::lock_guard lock(shared.mutex);
    if (shared.tasks.size() < shared.idle || has_another(shared)) {
      shared.tasks.push_back(std::move(task));
      shared.wake.notify_one();
      return;
    }
  }
  task();
}

}  // namespace millstream
