// A worker without Python, for the tests of the crew: `worker PARENT`. As `worker boss`
// it is a crew of its own whose workers stall; it writes their numbers and waits.

#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <string>
#include <thread>

#include "millstream/workers/process_crew.h"
#include "millstream/workers/worker.h"
#include "workers/worker_words.h"

namespace millstream {
namespace {

std::atomic<std::int64_t> current{-1};

void write_whereabouts(int) {
  char words[64];
  const int length =
      snprintf(words, sizeof(words), "making sample %lld\n",
               static_cast<long long>(current.load(std::memory_order_relaxed)));
  [[maybe_unused]] const ssize_t written =
      write(kWorkerWords, words, static_cast<std::size_t>(length));
}

[[noreturn]] void wait_for_ever() {
  while (true) pause();
}

void misbehave(const Told& told) {
  if (told.path != "-") {  // the first time only, whoever it is
    const int marker = open(told.path.c_str(), O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (marker < 0) return;
    close(marker);
  }
  if (told.mode == "exit") _exit(told.number);
  if (told.mode == "stall") wait_for_ever();
  if (told.mode == "kill") {
    signal(told.number, SIG_DFL);
    raise(told.number);
  }
  if (told.mode == "deaf") {
    close(kWorkerSocket);
    wait_for_ever();
  }
  if (told.mode == "babble") {
    const std::string noise(100, '\xEE');
    send(kWorkerSocket, noise.data(), noise.size(), MSG_NOSIGNAL);
    wait_for_ever();
  }
}

void make_row(Worker& worker, const Told& told, std::int64_t row) {
  const Task& task = worker.task();
  const auto k = static_cast<std::size_t>(row);
  for (std::size_t c = 0; c < task.output.size(); ++c) {
    std::byte* to = worker.data(task.output[c]) + row * task.output[c].stride;
    const std::byte* from = nullptr;
    if (told.mode == "echo") {
      from = worker.data(task.input.at(c)) + row * task.input.at(c).stride;
    }
    const std::uint64_t seed = task.seeds.empty() ? 0 : task.seeds.at(k);
    for (std::int64_t at = 0; at < told.bytes.at(c); ++at) {
      to[at] = from != nullptr ? from[at] ^ std::byte{0xFF}
                               : made_byte(task.indices.at(k), seed, c, at);
    }
  }
}

void serve(Worker& worker, const Told& told) {
  while (worker.next()) {
    const Task& task = worker.task();
    bool failed = false;
    std::string beside;
    for (std::size_t k = 0; k < task.indices.size() && !failed; ++k) {
      const auto row = static_cast<std::int64_t>(k);
      const std::int64_t sample = task.indices[k];
      worker.row().store(row);
      current.store(sample, std::memory_order_relaxed);
      failed = told.mode == "fail" && sample >= told.sample;
      if (failed) {
        worker.failed(
            {row, "sample " + std::to_string(sample) + " is bad", "as bytes"});
      } else if (sample == told.sample) {
        misbehave(told);
      }
      if (told.mode == "together" && k == 0) {
        worker.row().store(-static_cast<std::int64_t>(task.indices.size()));
        usleep(static_cast<useconds_t>(told.number) *
               static_cast<useconds_t>(task.indices.size()));
      }
      if (told.mode == "slow") usleep(static_cast<useconds_t>(told.number));
      if (told.mode == "beside") beside += std::to_string(sample) + ' ';
      make_row(worker, told, row);
    }
    if (!failed) worker.done(beside);
  }
}

int work(std::int64_t parent) {
  signal(whereabouts_signal(), write_whereabouts);
  Worker worker(parent);
  const Told told = Told::parsed(worker.setup());
  if (told.mode == "vanish") return told.number;
  if (told.mode == "refuse") {
    worker.failed({-1, "cannot be set up", "as bytes"});
    return 0;
  }
  if (told.mode == "noise") {  // at once, so that no part can come between
    const std::string noise(100, '\xEE');
    send_all(kWorkerSocket, framed(Kind::kReady, {}) + noise);
    wait_for_ever();
  }
  worker.ready();
  serve(worker, told);
  return 0;
}

int boss(const char* program) {
  Told told{.mode = "stall", .sample = 1};
  ProcessCrew crew({{program, std::to_string(getpid())}, {}, told.str()},
                   {.workers = 2});
  const std::jthread asking([&] {
    const std::vector<std::int64_t> indices(2, 1);
    const Block block = crew.block(2 * told.bytes[0]);
    const Column column{DType::kUint8, Shape({told.bytes[0]}), block.data(),
                        told.bytes[0], nullptr};
    crew.make({indices, {}, {}, {&column, 1}, {}, 0});
  });
  while (crew.pids().size() < 2) usleep(1000);
  for (const std::int64_t pid : crew.pids()) {
    printf("%lld\n", static_cast<long long>(pid));
  }
  fclose(stdout);
  wait_for_ever();
}

}  // namespace
}  // namespace millstream

int main(int count, char** arguments) {
  if (count != 2) return 2;
  if (std::strcmp(arguments[1], "boss") == 0) return millstream::boss(arguments[0]);
  return millstream::work(std::stoll(arguments[1]));
}
