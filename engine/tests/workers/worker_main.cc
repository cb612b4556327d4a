// A worker process without Python, for the tests of the pool: `worker PARENT`. As
// `worker boss` it starts a pool whose workers stall, prints their pids and waits.

#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "millstream/workers/process_worker_pool.h"
#include "millstream/workers/worker.h"
#include "workers/worker_instructions.h"

namespace millstream {
namespace {

std::atomic<std::int64_t> current{-1};

void write_sample(int) {
  char words[64];
  const int length =
      snprintf(words, sizeof(words), "making sample %lld\n",
               static_cast<long long>(current.load(std::memory_order_relaxed)));
  [[maybe_unused]] const ssize_t written =
      write(kWorkerStack, words, static_cast<std::size_t>(length));
}

[[noreturn]] void wait_for_ever() {
  while (true) pause();
}

void misbehave(const Instructions& instructions) {
  if (instructions.path != "-") {  // only the first time, in whichever worker
    const int marker =
        open(instructions.path.c_str(), O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (marker < 0) return;
    close(marker);
  }
  if (instructions.mode == "exit") _exit(instructions.number);
  if (instructions.mode == "stall") wait_for_ever();
  if (instructions.mode == "kill") {
    signal(instructions.number, SIG_DFL);
    raise(instructions.number);
  }
  if (instructions.mode == "deaf") {
    close(kWorkerSocket);
    wait_for_ever();
  }
  if (instructions.mode == "babble") {
    const std::string noise(100, '\xEE');
    send(kWorkerSocket, noise.data(), noise.size(), MSG_NOSIGNAL);
    wait_for_ever();
  }
}

void make_row(Worker& worker, const Instructions& instructions, std::int64_t row) {
  const Task& task = worker.task();
  const auto k = static_cast<std::size_t>(row);
  for (std::size_t c = 0; c < task.output.size(); ++c) {
    std::byte* to = worker.data(task.output[c]) + row * task.output[c].stride;
    const std::byte* from = nullptr;
    if (instructions.mode == "echo") {
      from = worker.data(task.input.at(c)) + row * task.input.at(c).stride;
    }
    const std::uint64_t seed = task.seeds.empty() ? 0 : task.seeds.at(k);
    for (std::int64_t at = 0; at < instructions.bytes.at(c); ++at) {
      to[at] = from != nullptr ? from[at] ^ std::byte{0xFF}
                               : expected_byte(task.indices.at(k), seed, c, at);
    }
  }
}

void serve(Worker& worker, const Instructions& instructions) {
  while (worker.next()) {
    const Task& task = worker.task();
    bool failed = false;
    std::vector<std::string> host_values;
    for (std::size_t k = 0; k < task.indices.size() && !failed; ++k) {
      const auto row = static_cast<std::int64_t>(k);
      const std::int64_t sample = task.indices[k];
      worker.row().store(row);
      current.store(sample, std::memory_order_relaxed);
      failed = instructions.mode == "fail" && sample >= instructions.sample;
      if (failed) {
        worker.failed(
            {row, "sample " + std::to_string(sample) + " is bad", "as bytes"});
      } else if (sample == instructions.sample) {
        misbehave(instructions);
      }
      if (instructions.mode == "together" && k == 0) {
        worker.row().store(-static_cast<std::int64_t>(task.indices.size()));
        usleep(static_cast<useconds_t>(instructions.number) *
               static_cast<useconds_t>(task.indices.size()));
      }
      if (instructions.mode == "slow")
        usleep(static_cast<useconds_t>(instructions.number));
      if (instructions.mode == "host_values") {
        const std::string given = task.host_values.empty() ? "" : task.host_values[k];
        host_values.push_back(std::to_string(sample) + given);
      }
      make_row(worker, instructions, row);
    }
    if (instructions.mode == "few_host_values") host_values = {"one"};
    if (!failed) worker.done(host_values);
  }
}

int work(std::int64_t parent) {
  signal(stack_signal(), write_sample);
  Worker worker(parent);
  const Instructions instructions = Instructions::parsed(worker.setup());
  if (instructions.mode == "vanish") return instructions.number;
  if (instructions.mode == "refuse") {
    worker.failed({-1, "cannot be set up", "as bytes"});
    return 0;
  }
  if (instructions.mode ==
      "noise") {  // in one message, so that no chunk arrives in between
    const std::string noise(100, '\xEE');
    send_all(kWorkerSocket, framed(MessageKind::kReady, {}) + noise);
    wait_for_ever();
  }
  worker.ready();
  serve(worker, instructions);
  return 0;
}

int boss(const char* program) {
  Instructions instructions{.mode = "stall", .sample = 1};
  ProcessWorkerPool pool({{program, std::to_string(getpid())}, {}, instructions.str()},
                         {.workers = 2});
  const std::jthread asking([&] {
    const std::vector<std::int64_t> indices(2, 1);
    const Block block = pool.block(2 * instructions.bytes[0]);
    const Column column{DType::kUint8, Shape({instructions.bytes[0]}), block.data(),
                        instructions.bytes[0], nullptr};
    pool.make({indices, {}, {}, {&column, 1}, {}, 0});
  });
  while (pool.pids().size() < 2) usleep(1000);
  for (const std::int64_t pid : pool.pids()) {
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
