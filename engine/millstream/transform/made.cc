#include "millstream/transform/made.h"

#include <utility>

#include "millstream/core/error.h"

namespace millstream {

MadeTransform::MadeTransform(std::string name, Schema input, Schema output,
                             std::shared_ptr<Maker> maker, bool draws)
    : name_(std::move(name)),
      input_(std::move(input)),
      output_(std::move(output)),
      maker_(std::move(maker)),
      draws_(draws) {}

Flow MadeTransform::flow(const Schema& input) const {
  if (input != input_) {
    throw ArgumentError(text(name_, " takes ", millstream::str(input_), ", not ",
                             millstream::str(input)));
  }
  return {output_, std::vector<int>(output_.size(), Flow::kMade)};
}

void MadeTransform::apply(const Flow&, std::span<const Column> input,
                          std::span<const Column> output, std::int64_t rows,
                          const Samples& samples, Memory& memory) const {
  const auto seeds = memory.array<std::uint64_t>(draws_ ? rows : 0);
  for (std::size_t k = 0; k < seeds.size(); ++k) {
    Random random = samples.random(static_cast<std::int64_t>(k));
    const std::uint64_t high = random.bits();
    seeds[k] = (high << 32) | random.bits();
  }
  const auto count = static_cast<std::size_t>(rows);
  maker_->make({samples.indices.first(count), seeds, input, output, samples.making,
                samples.first});
}

}  // namespace millstream
