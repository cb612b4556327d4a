#include "millstream/source/made.h"

#include <utility>

#include "millstream/core/convert.h"
#include "millstream/core/error.h"

namespace millstream {

MadeSource::MadeSource(std::int64_t size, Schema schema, std::shared_ptr<Maker> maker)
    : size_(size), schema_(std::move(schema)), maker_(std::move(maker)) {
  if (size < 1) {
    throw ArgumentError(text("a source has at least one sample, not ", size));
  }
}

void MadeSource::read_for(const Making& making, std::int64_t first,
                          std::span<const std::int64_t> indices,
                          std::span<Column> columns, Memory& memory) const {
  const auto count = static_cast<std::int64_t>(indices.size());
  const auto made = memory.array<Column>(static_cast<std::int64_t>(columns.size()));
  for (std::size_t i = 0; i < columns.size(); ++i) {
    const Field& field = schema_[i];
    const bool in_place = columns[i].data != nullptr && columns[i].dtype == field.dtype;
    const std::int64_t bytes = byte_size(field);
    made[i] = {field.dtype, field.shape,
               in_place ? columns[i].data : memory.allocate(bytes * count),
               in_place ? columns[i].stride : bytes, nullptr};
  }
  maker_->make({indices, {}, {}, made, making, first});
  for (std::size_t i = 0; i < columns.size(); ++i) {
    if (columns[i].rows != nullptr) {
      for (std::int64_t k = 0; k < count; ++k) columns[i].rows[k] = made[i].row(k);
    } else if (columns[i].data != made[i].data) {
      convert_rows(schema_[i].name, made[i], columns[i], count, indices);
    }
  }
}

}  // namespace millstream
