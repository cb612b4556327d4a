#include "millstream/transform/origin.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace millstream {
namespace {

/// `name`, followed by "#" until no field of the schema has this name.
std::string unused(const Schema& schema, std::string name) {
  while (std::ranges::find(schema, name, &Field::name) != schema.end()) name += '#';
  return name;
}

}  // namespace

Flow Origin::flow(const Schema& input) const {
  Flow flow = passing(input);
  for (const char* name : {"#epoch", "#sample"}) {
    flow.schema.push_back({unused(input, name), DType::kUint32, {}});
    flow.from.push_back(Flow::kMade);
  }
  return flow;
}

void Origin::apply(const Flow&, const Request& request, const Rows&, Rows& out) const {
  const Column& epochs = out.columns[out.columns.size() - 2];
  const Column& samples = out.columns.back();
  for (std::int64_t k = 0; k < request.rows(); ++k) {
    const auto row = static_cast<std::size_t>(k);
    const auto sample = static_cast<std::uint32_t>(request.indices[row]);
    std::memcpy(epochs.row(k), &request.epochs[row], sizeof(std::uint32_t));
    std::memcpy(samples.row(k), &sample, sizeof(sample));
  }
}

}  // namespace millstream
