#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "millstream/transform/function.h"
#include "millstream/workers/thread_worker_pool.h"
#include "transform/transform_conformance.h"

namespace millstream::conformance {
namespace {

/// A transform whose threads add up the bytes of a sample, and its seed if `seeded`.
std::shared_ptr<const Transform> summing(const Schema& input, int workers, bool seeded,
                                         int timeout = 0) {
  ThreadWorkerPool::Function function;
  function.make = [seeded](const WorkRequest& chunk, std::atomic<std::int64_t>& row,
                           const std::shared_ptr<const void>&) {
    for (std::int64_t k = 0; k < chunk.rows(); ++k) {
      row.store(k);
      std::uint64_t sum = 0;
      for (const Column& column : chunk.input) {
        for (std::int64_t at = 0; at < column.row_bytes(); ++at) {
          sum = sum * 31 + std::to_integer<std::uint64_t>(column.row(k)[at]);
        }
      }
      if (seeded) sum += chunk.seeds[static_cast<std::size_t>(k)];
      std::memcpy(chunk.output[0].row(k), &sum, sizeof(sum));
      const float half = static_cast<float>(sum % 1000) / 2;
      for (std::int64_t at = 0; at < 3; ++at) {
        std::memcpy(chunk.output[1].row(k) + 4 * at, &half, sizeof(half));
      }
    }
  };
  function.stack_of = [](std::uint64_t) { return std::string(); };
  const Schema output = {{"sum", DType::kUint64, {}}, {"half", DType::kFloat32, {3}}};
  return std::make_shared<FunctionTransform>(
      "summing", input, output,
      std::make_shared<ThreadWorkerPool>(std::move(function), workers,
                                         std::chrono::milliseconds(timeout)));
}

std::vector<TransformCase> made() {
  const Schema input = {{"before", DType::kInt16, {3}},
                        {"x", DType::kFloat32, {2, 3}},
                        {"after", DType::kUint8, {}}};
  return {{"OneThread", summing(input, 1, false), input},
          {"ThreeThreads", summing(input, 3, false), input},
          {"Watched", summing(input, 2, true, 600'000), input, true},
          {"Seeded", summing(input, 2, true), input, true}};
}

INSTANTIATE_TEST_SUITE_P(Made, TransformConformance, testing::ValuesIn(made()),
                         case_name);
}  // namespace
}  // namespace millstream::conformance
