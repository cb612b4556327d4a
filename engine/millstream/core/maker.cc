#include "millstream/core/maker.h"

namespace millstream {
namespace {

void advance(std::span<const Column> columns, std::int64_t rows,
             std::vector<Column>& into) {
  into.assign(columns.begin(), columns.end());
  for (Column& column : into) {
    if (column.rows != nullptr) {
      column.rows += rows;
    } else {
      column.data += rows * column.stride;
    }
  }
}

}  // namespace

Work Work::part(std::int64_t begin, std::int64_t count, std::vector<Column>& inputs,
                std::vector<Column>& outputs) const {
  advance(input, begin, inputs);
  advance(output, begin, outputs);
  const auto at = static_cast<std::size_t>(begin);
  const auto size = static_cast<std::size_t>(count);
  return {indices.subspan(at, size),
          seeds.empty() ? seeds : seeds.subspan(at, size),
          inputs,
          outputs,
          making,
          first + begin};
}

}  // namespace millstream
