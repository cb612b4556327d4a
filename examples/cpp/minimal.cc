// Makes batches in C++ from a source, an order, a transform and a loader.

#include <cstdint>
#include <iostream>
#include <memory>
#include <numeric>
#include <vector>

#include "millstream/loader/loader.h"
#include "millstream/source/arrays.h"
#include "millstream/transform/normalize.h"

int main() {
  using namespace millstream;

  std::vector<std::uint8_t> pixels(10 * 4);
  std::iota(pixels.begin(), pixels.end(), std::uint8_t{0});
  const Array images{{"image", DType::kUint8, {2, 2}},
                     10,
                     reinterpret_cast<const std::byte*>(pixels.data()),
                     4,
                     nullptr};
  auto source = std::make_shared<ArraysSource>(std::vector{images});
  Schedule schedule(std::make_shared<Shuffle>(source->size()), 4, Remainder::kPad);
  auto plan = std::make_shared<Plan>(
      source, std::move(schedule),
      Transforms{std::make_shared<Normalize>("image", DType::kFloat32, 1.0 / 255)},
      Transforms{});

  const DType dtypes[] = {DType::kFloat32};
  Loader loader(plan, dtypes, {.threads = 2, .prefetch = 2});
  Position position{.seed = {.low = 7}, .epoch = 0, .step = 0};
  for (std::int64_t step = 0; step < plan->schedule().steps(); ++step) {
    const auto batch = loader.deliver({.position = position}).batch;
    const auto* values = reinterpret_cast<const float*>(batch->columns()[0].data);
    for (std::int64_t row = 0; row < plan->batch_size(); ++row) {
      std::cout << (batch->mask()[row] ? "sample " : "padding ") << values[row * 4]
                << (row + 1 < plan->batch_size() ? ", " : "\n");
    }
    position = plan->schedule().next(position);
  }
}
