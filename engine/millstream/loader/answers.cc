#include "millstream/loader/answers.h"

#include <algorithm>

namespace millstream {
namespace {

/// How many answers are kept. The shards of one program are only a few batches apart,
/// unless it uses many seeds at once.
constexpr std::size_t kKept = 64;

}  // namespace

Answers::Found Answers::get(const Position& position, bool wait,
                            const std::function<Found()>& find) {
  std::unique_lock lock(mutex_);
  std::shared_ptr<Answer> answer;
  while (answer == nullptr) {
    auto& known = answers_[position];
    if (known != nullptr) {
      answer = known;
      if (!answer->done && !wait) return std::nullopt;
      changed_.wait(lock, [&] { return answer->done || answer->withdrawn; });
      if (answer->withdrawn) answer = nullptr;
      continue;
    }
    known = answer = std::make_shared<Answer>();
    answer->number = ++count_;
    lock.unlock();
    try {
      answer->found = find();
    } catch (...) {
      answer->error = std::current_exception();
    }
    lock.lock();
    answer->done = answer->found.has_value() || answer->error != nullptr;
    answer->withdrawn = !answer->done;
    answer->found_at = std::chrono::steady_clock::now();
    changed_.notify_all();
    if (answer->withdrawn) {
      answers_.erase(position);
      return std::nullopt;
    }
  }
  if (++answer->taken == devices_) {
    const auto mine = answers_.find(position);
    if (mine != answers_.end() && mine->second == answer) answers_.erase(mine);
    changed_.notify_all();
  }
  evict();
  if (answer->error) std::rethrow_exception(answer->error);
  return answer->found;
}

void Answers::forget_errors(std::chrono::seconds age,
                            std::chrono::milliseconds timeout) {
  const auto failed = [](const auto& entry) {
    return entry.second->done && entry.second->error != nullptr;
  };
  const auto latest = std::chrono::steady_clock::now() - age;
  std::unique_lock lock(mutex_);
  std::erase_if(answers_, [&](const auto& entry) {
    return failed(entry) && entry.second->found_at <= latest;
  });
  changed_.wait_for(lock, timeout,
                    [&] { return std::ranges::none_of(answers_, failed); });
}

void Answers::evict() {
  while (answers_.size() > kKept) {
    auto oldest = answers_.end();
    for (auto entry = answers_.begin(); entry != answers_.end(); ++entry) {
      if (!entry->second->done) continue;
      if (oldest == answers_.end() || entry->second->number < oldest->second->number) {
        oldest = entry;
      }
    }
    if (oldest == answers_.end()) return;
    answers_.erase(oldest);
  }
}

}  // namespace millstream
