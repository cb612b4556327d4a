#include "millstream/order/schedule.h"

#include <algorithm>
#include <utility>

#include "millstream/core/error.h"

namespace millstream {

Remainder remainder_named(std::string_view name) {
  if (name == "pad") return Remainder::kPad;
  if (name == "drop") return Remainder::kDrop;
  if (name == "wrap") return Remainder::kWrap;
  throw ArgumentError(text("a remainder is 'pad', 'drop' or 'wrap', not '", name, "'"));
}

Schedule::Schedule(std::unique_ptr<const Order> order, std::int64_t batch_size,
                   Remainder remainder)
    : order_(std::move(order)), batch_size_(batch_size), remainder_(remainder) {
  if (batch_size < 1 || batch_size > (std::int64_t{1} << 31)) {
    throw ArgumentError(
        text("batch_size must be between 1 and 2^31, not ", batch_size));
  }
  const std::int64_t length = order_->length();
  const std::int64_t whole = length / batch_size;
  if (remainder == Remainder::kDrop && whole == 0) {
    throw ArgumentError(text("drop_last leaves no batch: batch_size is ", batch_size,
                             ", but there are only ", length, " samples"));
  }
  steps_ = whole + (remainder != Remainder::kDrop && length % batch_size != 0 ? 1 : 0);
}

Position Schedule::next(const Position& position) const noexcept {
  Position after = position;
  if (++after.step >= steps_) {
    after.step = 0;
    ++after.epoch;
  }
  return after;
}

std::int64_t Schedule::valid_rows(const Position& position) const noexcept {
  if (remainder_ == Remainder::kWrap) return batch_size_;
  const std::int64_t left = order_->length() - position.step * batch_size_;
  return std::clamp<std::int64_t>(left, 0, batch_size_);
}

void Schedule::run(const Position& position, std::int64_t first_row,
                   std::span<std::int64_t> out) const {
  const std::int64_t length = order_->length();
  __extension__ using Wide = unsigned __int128;
  Wide epoch = position.epoch;
  std::int64_t at = position.step * batch_size_ + first_row;
  if (remainder_ == Remainder::kWrap) {
    const Wide place = (epoch * static_cast<std::uint64_t>(steps_) +
                        static_cast<std::uint64_t>(position.step)) *
                           static_cast<std::uint64_t>(batch_size_) +
                       static_cast<std::uint64_t>(first_row);
    epoch = place / static_cast<std::uint64_t>(length);
    at = static_cast<std::int64_t>(place % static_cast<std::uint64_t>(length));
  }
  while (!out.empty() && at < length) {
    const auto count =
        std::min<std::int64_t>(length - at, static_cast<std::int64_t>(out.size()));
    order_->run(position.seed, static_cast<std::uint32_t>(epoch), at,
                out.first(static_cast<std::size_t>(count)));
    out = out.subspan(static_cast<std::size_t>(count));
    if (remainder_ != Remainder::kWrap) break;
    at = 0;
    ++epoch;
  }
  std::ranges::fill(out, -1);
}

void Schedule::add_to(Digest& digest) const {
  digest.add(batch_size_).add(static_cast<std::int64_t>(remainder_));
  order_->add_to(digest);
}

}  // namespace millstream
