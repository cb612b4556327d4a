#include <benchmark/benchmark.h>

#include <cstring>
#include <memory>
#include <vector>

#include "millstream/loader/batch.h"
#include "millstream/loader/plan.h"
#include "millstream/source/arrays.h"
#include "millstream/transform/normalize.h"

namespace millstream {
namespace {

constexpr std::int64_t kSamples = 60'000;
constexpr std::int64_t kRows = 128;

std::vector<Array> images() {
  const auto pixels = std::make_shared<std::vector<std::byte>>(kSamples * 784);
  const Array array{
      {"image", DType::kUint8, {28, 28, 1}}, kSamples, pixels->data(), 784, pixels};
  return {array};
}

void make_batches(benchmark::State& state, Transforms before) {
  const Plan plan(std::make_shared<ArraysSource>(images()),
                  Schedule(std::make_shared<Shuffle>(kSamples), kRows, Remainder::kPad),
                  std::move(before), {});
  const auto slots = std::make_shared<Slots>(Layout(plan.schema(), kRows), 4);
  Position position;
  for (auto _ : state) {
    const auto batch = slots->take();
    plan.batch(position, batch->columns(), batch->mask());
    position = plan.schedule().next(position);
  }
  state.SetItemsProcessed(state.iterations() * kRows);
}

void gathered(benchmark::State& state) { make_batches(state, {}); }
BENCHMARK(gathered);

void normalized(benchmark::State& state) {
  make_batches(state,
               {std::make_shared<Normalize>("image", DType::kFloat32, 1.0 / 255)});
}
BENCHMARK(normalized);

void copied_in_order(benchmark::State& state) {
  const Array array = images().front();
  Block block(kRows * 784);
  std::int64_t first = 0;
  for (auto _ : state) {
    std::memcpy(block.data(), array.data + first * 784, kRows * 784);
    benchmark::ClobberMemory();
    first = first + 2 * kRows <= kSamples ? first + kRows : 0;
  }
  state.SetItemsProcessed(state.iterations() * kRows);
}
BENCHMARK(copied_in_order);

void permuted(benchmark::State& state) {
  const Grid grid(state.range(0));
  std::vector<std::int64_t> indices(kRows);
  std::uint32_t epoch = 0;
  for (auto _ : state) {
    Permutation(grid, {1, 2}, epoch++, Purpose::kShuffle).run(0, indices);
    benchmark::DoNotOptimize(indices.data());
  }
  state.SetItemsProcessed(state.iterations() * kRows);
}
BENCHMARK(permuted)->Arg(1'000)->Arg(1'000'000)->Arg(1'000'000'000'000);

}  // namespace
}  // namespace millstream
