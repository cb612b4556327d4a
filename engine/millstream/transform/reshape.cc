#include "millstream/transform/reshape.h"

#include <set>
#include <utility>
#include <vector>

#include "millstream/core/error.h"

namespace millstream {

Flatten::Flatten(std::string field, int first_axis)
    : field_(std::move(field)), first_axis_(first_axis) {
  if (first_axis < 0) {
    throw ArgumentError(
        text("flatten(", field_, "): the first axis cannot be ", first_axis));
  }
}

std::string Flatten::str() const { return text("flatten(", field_, ")"); }

Flow Flatten::flow(const Schema& input) const {
  const auto i = static_cast<std::size_t>(field_named(input, field_, str()));
  const Shape& shape = input[i].shape;
  if (first_axis_ > shape.rank()) {
    throw ArgumentError(text(str(), ": axis ", first_axis_, " is out of range for ",
                             millstream::str(input[i])));
  }
  std::vector<std::int64_t> extents;
  for (int axis = 0; axis < first_axis_; ++axis) extents.push_back(shape[axis]);
  const auto joined = shape.extents().subspan(static_cast<std::size_t>(first_axis_));
  extents.push_back(Shape(joined).elements());
  Flow flow = passing(input);
  flow.schema[i].shape = Shape(extents);
  return flow;
}

Rename::Rename(std::map<std::string, std::string> names) : names_(std::move(names)) {}

Flow Rename::flow(const Schema& input) const {
  Flow flow = passing(input);
  for (const auto& [from, to] : names_) {
    flow.schema[static_cast<std::size_t>(field_named(input, from, str()))].name = to;
  }
  std::set<std::string> seen;
  for (const Field& field : flow.schema) {
    if (!seen.insert(field.name).second) {
      throw ArgumentError(
          text("rename: two fields would be called '", field.name, "'"));
    }
  }
  return flow;
}

}  // namespace millstream
