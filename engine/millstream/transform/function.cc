#include "millstream/transform/function.h"

#include <utility>

#include "millstream/core/error.h"

namespace millstream {

FunctionTransform::FunctionTransform(std::string name, Schema input, Schema output,
                                     std::shared_ptr<WorkerPool> worker_pool,
                                     bool draws)
    : name_(std::move(name)),
      input_(std::move(input)),
      output_(std::move(output)),
      worker_pool_(std::move(worker_pool)),
      draws_(draws) {}

Flow FunctionTransform::flow(const Schema& input) const {
  if (input != input_) {
    throw ArgumentError(text(name_, " takes ", millstream::str(input_), ", not ",
                             millstream::str(input)));
  }
  return {output_, std::vector<int>(output_.size(), Flow::kMade)};
}

void FunctionTransform::apply(const Flow&, const Request& request, const Rows& in,
                              Rows& out) const {
  const auto seeds = out.memory.array<std::uint64_t>(draws_ ? request.rows() : 0);
  for (std::size_t k = 0; k < seeds.size(); ++k) {
    Random random = request.random(static_cast<std::int64_t>(k));
    const std::uint64_t high = random.bits();
    seeds[k] = (high << 32) | random.bits();
  }
  worker_pool_->make({request.indices, seeds, in.columns, out.columns, request.context,
                      request.first});
}

}  // namespace millstream
